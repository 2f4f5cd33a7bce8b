"""Streams whose truth is known, and what it is to play one."""

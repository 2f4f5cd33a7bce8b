"""Refits of an adapter: objectives, optimizer and steps."""

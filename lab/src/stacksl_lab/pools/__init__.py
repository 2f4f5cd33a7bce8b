"""Strategies that choose items of a labeled pool, ours and those of other libraries, compared."""

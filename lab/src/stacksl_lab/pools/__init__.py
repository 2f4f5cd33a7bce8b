"""Strategies that choose items of a labelled pool, ours and those of other libraries, compared."""

"""The items of a run, in a fixed order, and the role of each."""

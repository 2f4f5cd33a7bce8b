"""The items of a run, in one order, and what each of them is for."""

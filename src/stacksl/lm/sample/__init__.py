"""The language model of the package and the questions made for it."""

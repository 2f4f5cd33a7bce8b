"""The verbs of the command line, a module each."""

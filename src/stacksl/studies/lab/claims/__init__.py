"""The other studies, a module each."""

"""Memory and time that a run with a language model needs, before weights are loaded."""

"""The loop of a run: who is asked next, what is learnt, when the model is refitted."""

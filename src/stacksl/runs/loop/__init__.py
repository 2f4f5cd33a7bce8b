"""The loop of a run: choice of items, learning of labels, refits of the model."""

"""A run's folder: its state, anchors and tables."""

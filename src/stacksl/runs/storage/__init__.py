"""A run's folder: its state and anchors."""

"""A run's folder: its state, checkpoints, anchors, tables and tombstones."""

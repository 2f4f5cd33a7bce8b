"""A run's folder: its state, anchors, tables and tombstones."""

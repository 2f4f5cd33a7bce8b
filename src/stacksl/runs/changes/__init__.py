"""What changes a run that has begun: budget, items, classes, annotators, erased items."""

"""Final models fitted to convergence, with soft examples and label spreading."""

"""Final models fitted to convergence, and what helps them: soft examples, neighbours."""

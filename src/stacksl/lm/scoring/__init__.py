"""From token rows to log-likelihoods, states, scores and features of options."""

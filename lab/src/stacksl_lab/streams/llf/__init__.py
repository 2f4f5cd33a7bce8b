"""The study `llf`: the paper's gate over ridge and threshold."""

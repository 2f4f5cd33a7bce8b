"""From numbers of seeds to estimates with intervals."""

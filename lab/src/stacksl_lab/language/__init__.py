"""Studies that adapt language models on questions."""

"""Studies of learners on synthetic streams, a module each."""

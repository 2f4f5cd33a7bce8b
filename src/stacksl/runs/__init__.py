"""One run: settings, folder, rounds, checkpoints, resume."""

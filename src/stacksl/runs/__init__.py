"""One run: settings, folder, rounds, resume."""

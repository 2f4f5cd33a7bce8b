"""An open run: setup, replay, play."""

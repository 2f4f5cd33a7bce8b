"""The page on which annotators answer a run's questions in the browser; see `docs/label.md`."""

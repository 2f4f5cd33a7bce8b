"""The result of a run: a linear model or an adapter, its evaluation and its audit."""

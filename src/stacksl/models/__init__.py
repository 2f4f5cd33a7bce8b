"""What a run leaves behind: a linear model or an adapter, its evaluation and its audit."""

"""Formats of other programs: tasks of Label Studio, data sets of the Hugging Face library."""

"""What every study has in common: lines, kept numbers, processes, rows and tables."""

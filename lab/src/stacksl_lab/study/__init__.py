"""What every study has in common: lines, stored numbers, processes, rows and tables."""

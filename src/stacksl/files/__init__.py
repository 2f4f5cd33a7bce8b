"""How files are written and read back: atomic, private, with a digest and a format number."""

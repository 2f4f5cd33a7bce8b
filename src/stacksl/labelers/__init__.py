"""Labelers, who answer requests: the protocol, the registry, and the package's own labelers."""

"""The study `gates`: every gate on every stream."""

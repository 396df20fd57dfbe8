"""Model-based algorithms."""

"""On-policy policy gradient algorithms."""

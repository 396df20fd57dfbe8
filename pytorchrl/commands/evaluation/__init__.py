"""What `evaluate` prints of a policy: its return in environments, and its value estimated from data."""

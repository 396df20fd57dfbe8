"""Value-based algorithms: Q-learning and its variants."""

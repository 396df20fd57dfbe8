"""Off-policy actor-critic algorithms."""

"""What networks return: distributions of actions, and values of actions."""

"""What networks return: distributions of actions."""

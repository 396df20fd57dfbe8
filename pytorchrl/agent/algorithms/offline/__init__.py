"""Offline reinforcement learning algorithms."""

"""Storages whose transitions outlive the policy that made them."""

from storages.off_policy.replay_buffer import ReplayBuffer

__all__ = ["ReplayBuffer"]

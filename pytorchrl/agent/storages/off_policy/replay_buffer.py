"""The module path under which users know :class:`ReplayBuffer`."""

from storages.off_policy.replay_buffer import ReplayBuffer

__all__ = ["ReplayBuffer"]

"""Re-export of :class:`ReplayBuffer`."""

from storages.off_policy.replay_buffer import ReplayBuffer

__all__ = ["ReplayBuffer"]

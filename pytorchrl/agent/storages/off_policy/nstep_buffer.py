"""The module path under which users know :class:`NStepReplayBuffer`."""

from storages.off_policy.nstep_buffer import NStepReplayBuffer

__all__ = ["NStepReplayBuffer"]

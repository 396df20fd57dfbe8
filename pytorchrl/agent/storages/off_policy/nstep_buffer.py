"""Re-export of :class:`NStepReplayBuffer`."""

from storages.off_policy.nstep_buffer import NStepReplayBuffer

__all__ = ["NStepReplayBuffer"]

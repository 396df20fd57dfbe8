"""Replay buffers for off-policy algorithms."""

from storages.off_policy.ere_buffer import EREBuffer
from storages.off_policy.her_buffer import HERBuffer
from storages.off_policy.nstep_buffer import NStepReplayBuffer
from storages.off_policy.per_buffer import PERBuffer
from storages.off_policy.replay_buffer import ReplayBuffer

__all__ = ["EREBuffer", "HERBuffer", "NStepReplayBuffer", "PERBuffer", "ReplayBuffer"]

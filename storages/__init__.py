"""How experience is kept: storages that hold transitions as arrays and make batches of tensors of them.

Stands alone: numpy, numba, torch, zarr. Fields are named in :mod:`storages.transition`; the contract that all
keep is :class:`Storage`.
"""

from storages.core.fields import SampleError
from storages.core.on_device import DeviceMemoryError
from storages.episodes import Episodes
from storages.factory import Component, Factory, FieldComponent
from storages.off_policy.ere_buffer import EREBuffer
from storages.off_policy.her_buffer import HERBuffer
from storages.off_policy.nstep_buffer import NStepReplayBuffer
from storages.off_policy.per_buffer import PERBuffer
from storages.off_policy.persistent_episodic_buffer import PersistentEpisodicBuffer
from storages.off_policy.replay_buffer import ReplayBuffer
from storages.on_policy.gae_buffer import GAEBuffer
from storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer
from storages.on_policy.vtrace_buffer import VTraceBuffer
from storages.persistent import DamageError, PersistenceError
from storages.schedule import LinearSchedule, Schedule
from storages.schedule_shapes import CosineSchedule, ExponentialSchedule, FunctionSchedule, PiecewiseSchedule
from storages.sequences import Sequences
from storages.setting import Setting
from storages.storage import EmptyStorageError, Storage

__all__ = [
    "Component",
    "CosineSchedule",
    "DamageError",
    "DeviceMemoryError",
    "EREBuffer",
    "EmptyStorageError",
    "Episodes",
    "ExponentialSchedule",
    "Factory",
    "FieldComponent",
    "FunctionSchedule",
    "GAEBuffer",
    "HERBuffer",
    "LinearSchedule",
    "NStepReplayBuffer",
    "PERBuffer",
    "PersistenceError",
    "PersistentEpisodicBuffer",
    "PiecewiseSchedule",
    "ReplayBuffer",
    "SampleError",
    "Schedule",
    "Sequences",
    "Setting",
    "Storage",
    "VTraceBuffer",
    "VanillaOnPolicyBuffer",
]

"""Replay buffers and rollout storages: they hold transitions as arrays and yield batches of tensors.

Depends on numpy, numba, torch and zarr alone. Field names are in :mod:`storages.transition`; the interface of all
storages is :class:`Storage`.
"""

from storages.component.factory import Component, Factory, FieldComponent
from storages.component.schedule import (
    CosineSchedule,
    ExponentialSchedule,
    FunctionSchedule,
    LinearSchedule,
    PiecewiseSchedule,
    Schedule,
)
from storages.component.setting import Setting
from storages.core.device.device_cache import DeviceMemoryError
from storages.core.ring.layout import SampleError
from storages.core.sampling.rate_limiter import RateLimit, RateLimitError
from storages.episode import Episode
from storages.errors import DamageError, DatasetError, EmptyStorageError, PersistenceError
from storages.off_policy.ere_buffer import EREBuffer
from storages.off_policy.her_buffer import HERBuffer
from storages.off_policy.mixed_storage import MixedSource, MixedStorage
from storages.off_policy.nstep_buffer import NStepReplayBuffer
from storages.off_policy.per_buffer import PERBuffer
from storages.off_policy.persistent_episodic_buffer import PersistentEpisodicBuffer
from storages.off_policy.replay_buffer import ReplayBuffer
from storages.on_policy.average_reward_buffer import AverageRewardBuffer
from storages.on_policy.gae_buffer import GAEBuffer
from storages.on_policy.lambda_return_buffer import LambdaReturnBuffer
from storages.on_policy.retrace_buffer import RetraceBuffer
from storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer
from storages.on_policy.vtrace_buffer import VTraceBuffer
from storages.sequence_settings import Episodes, MultiStepRows, Sequences
from storages.storage import Storage
from storages.transforms import RandomShift

__all__ = [
    "AverageRewardBuffer",
    "Component",
    "CosineSchedule",
    "DamageError",
    "DatasetError",
    "DeviceMemoryError",
    "EREBuffer",
    "EmptyStorageError",
    "Episode",
    "Episodes",
    "ExponentialSchedule",
    "Factory",
    "FieldComponent",
    "FunctionSchedule",
    "GAEBuffer",
    "HERBuffer",
    "LambdaReturnBuffer",
    "LinearSchedule",
    "MixedSource",
    "MixedStorage",
    "MultiStepRows",
    "NStepReplayBuffer",
    "PERBuffer",
    "PersistenceError",
    "PersistentEpisodicBuffer",
    "PiecewiseSchedule",
    "RandomShift",
    "RateLimit",
    "RateLimitError",
    "ReplayBuffer",
    "RetraceBuffer",
    "SampleError",
    "Schedule",
    "Sequences",
    "Setting",
    "Storage",
    "VTraceBuffer",
    "VanillaOnPolicyBuffer",
]

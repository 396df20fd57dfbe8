"""The names of the package, each of which is written once here: ``import x as x`` is an export."""

from storages.component.factory import Component as Component, Factory as Factory, FieldComponent as FieldComponent
from storages.component.schedule import (
    CosineSchedule as CosineSchedule,
    ExponentialSchedule as ExponentialSchedule,
    FunctionSchedule as FunctionSchedule,
    LinearSchedule as LinearSchedule,
    PiecewiseSchedule as PiecewiseSchedule,
    RepeatedSchedule as RepeatedSchedule,
    Schedule as Schedule,
)
from storages.component.setting import Setting as Setting
from storages.core.device.device_cache import DeviceMemoryError as DeviceMemoryError
from storages.core.ring.layout import SampleError as SampleError
from storages.core.sampling.rate_limiter import RateLimit as RateLimit, RateLimitError as RateLimitError
from storages.episode import Episode as Episode
from storages.errors import (
    DamageError as DamageError,
    DatasetError as DatasetError,
    EmptyStorageError as EmptyStorageError,
    PersistenceError as PersistenceError,
)
from storages.off_policy.ere_buffer import EREBuffer as EREBuffer
from storages.off_policy.her_buffer import HERBuffer as HERBuffer
from storages.off_policy.mixed_storage import MixedSource as MixedSource, MixedStorage as MixedStorage
from storages.off_policy.nstep_buffer import NStepReplayBuffer as NStepReplayBuffer
from storages.off_policy.per_buffer import PERBuffer as PERBuffer
from storages.off_policy.persistent_episodic_buffer import PersistentEpisodicBuffer as PersistentEpisodicBuffer
from storages.off_policy.replay_buffer import ReplayBuffer as ReplayBuffer
from storages.on_policy.average_reward_buffer import AverageRewardBuffer as AverageRewardBuffer
from storages.on_policy.gae_buffer import GAEBuffer as GAEBuffer
from storages.on_policy.lambda_return_buffer import LambdaReturnBuffer as LambdaReturnBuffer
from storages.on_policy.retrace_buffer import RetraceBuffer as RetraceBuffer
from storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer as VanillaOnPolicyBuffer
from storages.on_policy.vtrace_buffer import VTraceBuffer as VTraceBuffer
from storages.sequence_settings import Episodes as Episodes, MultiStepRows as MultiStepRows, Sequences as Sequences
from storages.storage import Storage as Storage
from storages.transforms import RandomIntensity as RandomIntensity, RandomShift as RandomShift

__all__: list[str]

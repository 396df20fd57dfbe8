"""A storage-centric deep reinforcement learning toolkit: ``import pytorchrl as prl``.

Compose an actor, an algorithm and a storage by their factories, and train::

    scheme = prl.Scheme(algo_factory=..., actor_factory=..., storage_factory=..., train_envs_factory=...)
    prl.Learner(scheme, target_steps=20_000, log_dir="runs/mine").run()
"""

import typing as _typing

from pytorchrl.agent import planners as planners, risk_measures as risk_measures
from pytorchrl.agent.actors import (
    Actor as Actor,
    OffPolicyActor as OffPolicyActor,
    OnPolicyActor as OnPolicyActor,
    View as View,
    heads as heads,
    outputs as outputs,
)
from pytorchrl.agent.algorithms import *  # noqa: F403 - all that it exports
from pytorchrl.agent.envs import (
    BitFlipping as BitFlipping,
    BoundAction as BoundAction,
    EpisodicLife as EpisodicLife,
    FireOnReset as FireOnReset,
    FlattenAction as FlattenAction,
    FlickerFrames as FlickerFrames,
    InvalidEnvironmentError as InvalidEnvironmentError,
    JoinActions as JoinActions,
    ObserveActionMask as ObserveActionMask,
    RandomizeAction as RandomizeAction,
    RoundAction as RoundAction,
    ScaleReward as ScaleReward,
    SelectObservation as SelectObservation,
    SparseMaze as SparseMaze,
    TerminalReward as TerminalReward,
    UnsupportedSpaceError as UnsupportedSpaceError,
    VecEnv as VecEnv,
    VecStep as VecStep,
    atari_envs as atari_envs,
)
from pytorchrl.agent.explorers import (
    ApeXEpsilonGreedy as ApeXEpsilonGreedy,
    Boltzmann as Boltzmann,
    EpsilonGreedy as EpsilonGreedy,
    Exploration as Exploration,
    Explorer as Explorer,
    GaussianNoise as GaussianNoise,
    Greedy as Greedy,
    OrnsteinUhlenbeck as OrnsteinUhlenbeck,
    Sample as Sample,
    SampleByMatrix as SampleByMatrix,
    UniformUntil as UniformUntil,
)
from pytorchrl.agent.optimizers import (
    LBFGS as LBFGS,
    SGD as SGD,
    Adam as Adam,
    AdamW as AdamW,
    ElementwiseOptimizer as ElementwiseOptimizer,
    Optimizer as Optimizer,
    RMSprop as RMSprop,
    TorchOptimizer as TorchOptimizer,
)
from pytorchrl.commands.composition.compose import compose as compose
from pytorchrl.commands.data.making import make_dataset as make_dataset
from pytorchrl.comparison import (
    Comparison as Comparison,
    compare_runs as compare_runs,
    draw_comparison as draw_comparison,
    draw_profile as draw_profile,
)
from pytorchrl.driven_agent import Agent as Agent
from pytorchrl.experiments import (
    ActionDifference as ActionDifference,
    Callback as Callback,
    CheckpointError as CheckpointError,
    EvaluateIn as EvaluateIn,
    ExportPolicy as ExportPolicy,
    FittedQEvaluation as FittedQEvaluation,
    InitialValue as InitialValue,
    LearntReward as LearntReward,
    LogWeights as LogWeights,
    NormalizedScore as NormalizedScore,
    PruneTrial as PruneTrial,
    RecordVideos as RecordVideos,
    ReenactmentError as ReenactmentError,
    ResetNetworks as ResetNetworks,
    RewardFunction as RewardFunction,
    RunInUseError as RunInUseError,
    SavePolicies as SavePolicies,
    SetHyperParameter as SetHyperParameter,
    StopAfter as StopAfter,
    StopAtReturn as StopAtReturn,
    StopAtSuccess as StopAtSuccess,
    TDError as TDError,
    TimeParts as TimeParts,
    TrainedPolicy as TrainedPolicy,
    TransitionDescription as TransitionDescription,
    describe_transition as describe_transition,
    film_transition as film_transition,
    load_policy as load_policy,
    most_surprising as most_surprising,
    start_from as start_from,
)
from pytorchrl.learner import Learner as Learner
from pytorchrl.logging import plot_runs as plot_runs, read_evaluations as read_evaluations, read_metrics as read_metrics
from pytorchrl.scheme import (
    CollectorError as CollectorError,
    CompositionError as CompositionError,
    DeviceError as DeviceError,
    Evaluation as Evaluation,
    EvaluationStoppedError as EvaluationStoppedError,
    HogwildScheme as HogwildScheme,
    Overlapped as Overlapped,
    RayScheme as RayScheme,
    Scheme as Scheme,
    WorkerDiedError as WorkerDiedError,
    distributed as distributed,
    from_dataset as from_dataset,
)
from storages import (
    AverageRewardBuffer as AverageRewardBuffer,
    Component as Component,
    CosineSchedule as CosineSchedule,
    DamageError as DamageError,
    DeviceMemoryError as DeviceMemoryError,
    EmptyStorageError as EmptyStorageError,
    Episodes as Episodes,
    EREBuffer as EREBuffer,
    ExponentialSchedule as ExponentialSchedule,
    Factory as Factory,
    FunctionSchedule as FunctionSchedule,
    GAEBuffer as GAEBuffer,
    HERBuffer as HERBuffer,
    LambdaReturnBuffer as LambdaReturnBuffer,
    LinearSchedule as LinearSchedule,
    MixedSource as MixedSource,
    MixedStorage as MixedStorage,
    NStepReplayBuffer as NStepReplayBuffer,
    PERBuffer as PERBuffer,
    PersistenceError as PersistenceError,
    PersistentEpisodicBuffer as PersistentEpisodicBuffer,
    PiecewiseSchedule as PiecewiseSchedule,
    RandomShift as RandomShift,
    RateLimit as RateLimit,
    RateLimitError as RateLimitError,
    ReplayBuffer as ReplayBuffer,
    RetraceBuffer as RetraceBuffer,
    SampleError as SampleError,
    Schedule as Schedule,
    Sequences as Sequences,
    Storage as Storage,
    VanillaOnPolicyBuffer as VanillaOnPolicyBuffer,
    VTraceBuffer as VTraceBuffer,
)
from storages.datasets import SelectEpisodes as SelectEpisodes
from storages.sharded import (
    LocalShards as LocalShards,
    ReplayShard as ReplayShard,
    ShardedReplay as ShardedReplay,
    ShardGroup as ShardGroup,
    ShardLostError as ShardLostError,
    SliceWriter as SliceWriter,
    factory_of_shard as factory_of_shard,
)
from storages.transition import (
    ACT as ACT,
    ACTPROBS as ACTPROBS,
    ADV as ADV,
    DONE as DONE,
    DONE2 as DONE2,
    IADV as IADV,
    INFO as INFO,
    IRET as IRET,
    IREW as IREW,
    IVAL as IVAL,
    LOGP as LOGP,
    MASK as MASK,
    OBS as OBS,
    OBS2 as OBS2,
    RET as RET,
    REW as REW,
    RHS as RHS,
    RHS2 as RHS2,
    VAL as VAL,
)

# Each name is written once: a type checker takes ``import x as x`` and ``import *`` for exports.
__all__ = sorted(
    name
    for name, value in vars().items()
    if not name.startswith("_") and getattr(value, "__name__", "") != f"{__name__}.{name}"
)


if not _typing.TYPE_CHECKING:  # for which each name would exist

    def __getattr__(name):
        # Read where it is needed, as few programs need it.
        from pytorchrl.agent.other_names.items import refuse_name

        refuse_name(name)

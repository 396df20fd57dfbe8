"""A storage-centric deep reinforcement learning toolkit: ``import pytorchrl as prl``.

Compose an actor, an algorithm and a storage by their factories, and train::

    scheme = prl.Scheme(algo_factory=..., actor_factory=..., storage_factory=..., train_envs_factory=...)
    prl.Learner(scheme, target_steps=20_000, log_dir="runs/mine").run()
"""

from pytorchrl.agent.actors import Actor, OffPolicyActor, OnPolicyActor
from pytorchrl.agent.algorithms import DQN, PPO, SAC, ActingStep, Algorithm
from pytorchrl.agent.envs import (
    BitFlipping,
    BoundAction,
    FlattenAction,
    InvalidEnvironmentError,
    RoundAction,
    ScaleReward,
    SelectObservation,
    UnsupportedSpaceError,
    VecEnv,
    VecStep,
)
from pytorchrl.experiments import CheckpointError, RunInUseError
from pytorchrl.learner import Learner
from pytorchrl.logging import plot_runs, read_metrics
from pytorchrl.scheme import CompositionError, DeviceError, Evaluation, EvaluationStoppedError, Scheme
from storages import (
    Component,
    DamageError,
    DeviceMemoryError,
    EmptyStorageError,
    Episodes,
    EREBuffer,
    Factory,
    GAEBuffer,
    HERBuffer,
    LinearSchedule,
    NStepReplayBuffer,
    PERBuffer,
    PersistenceError,
    PersistentEpisodicBuffer,
    ReplayBuffer,
    SampleError,
    Schedule,
    Sequences,
    Storage,
    VanillaOnPolicyBuffer,
    VTraceBuffer,
)

__all__ = [
    "DQN",
    "PPO",
    "SAC",
    "ActingStep",
    "Actor",
    "Algorithm",
    "BitFlipping",
    "BoundAction",
    "CheckpointError",
    "Component",
    "CompositionError",
    "DamageError",
    "DeviceError",
    "DeviceMemoryError",
    "EREBuffer",
    "EmptyStorageError",
    "Episodes",
    "Evaluation",
    "EvaluationStoppedError",
    "Factory",
    "FlattenAction",
    "GAEBuffer",
    "HERBuffer",
    "InvalidEnvironmentError",
    "Learner",
    "LinearSchedule",
    "NStepReplayBuffer",
    "OffPolicyActor",
    "OnPolicyActor",
    "PERBuffer",
    "PersistenceError",
    "PersistentEpisodicBuffer",
    "ReplayBuffer",
    "RoundAction",
    "RunInUseError",
    "SampleError",
    "ScaleReward",
    "Schedule",
    "Scheme",
    "SelectObservation",
    "Sequences",
    "Storage",
    "UnsupportedSpaceError",
    "VTraceBuffer",
    "VanillaOnPolicyBuffer",
    "VecEnv",
    "VecStep",
    "plot_runs",
    "read_metrics",
]

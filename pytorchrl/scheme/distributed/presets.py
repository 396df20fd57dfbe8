"""Distributed schemes named after their papers: ``prl.RayScheme(**preset, train_envs_factory=envs)``.

``preset | {...}`` changes some of the arguments. Unless noted otherwise, presets are for Atari with clipped rewards and
stacks of 4 frames, as in the papers.
"""

from typing import Any, TypedDict

from pytorchrl.agent.actors import OffPolicyActor, OnPolicyActor
from pytorchrl.agent.algorithms import DQN, IMPALA, PPO, R2D2, SAC
from pytorchrl.agent.algorithms.policy_gradient.a2c import A2C
from pytorchrl.agent.algorithms.value_based.rollout_q_learning import NStepQLearning
from pytorchrl.agent.explorers import ApeXEpsilonGreedy, EpsilonGreedy
from pytorchrl.agent.optimizers import RMSprop
from pytorchrl.scheme.distributed.plan import Communication
from storages.component.factory import Factory
from storages.component.schedule import LinearSchedule
from storages.off_policy import PERBuffer, ReplayBuffer
from storages.on_policy import GAEBuffer, VanillaOnPolicyBuffer, VTraceBuffer


class DistributedPreset(TypedDict, total=False):
    """Arguments of :class:`RayScheme`."""

    algo_factory: Factory[Any]
    actor_factory: Factory[Any]
    storage_factory: Factory[Any]
    num_collectors: int
    num_gradient_workers: int
    communication: Communication
    slice_steps: int
    slices_at_once: int
    preemption: float
    explorers: tuple[Any, ...]
    num_replay_shards: int
    initial_priorities: bool


def impala(num_collectors: int = 48) -> DistributedPreset:
    """Espeholt et al., "IMPALA" (arXiv 1802.01561), section 5.3 and appendix G: asynchronous actors, V-trace.

    A batch of the learner has 32 slices of 20 steps, or as many slices as there are collectors if these are fewer. The
    paper's losses are summed over a batch, and here they are means: its gradient norm of 40 is divided by the rows of a
    batch, and RMSprop's epsilon of 0.01 by their square.

    Args:
        num_collectors: processes that collect, each in one environment.
    """
    num_steps, num_slices = 20, min(32, num_collectors)
    rows = num_steps * num_slices
    return DistributedPreset(
        algo_factory=IMPALA.create_factory(
            lr=LinearSchedule(6e-4, 0.0),
            optimizer=RMSprop(alpha=0.99, eps=0.01 / rows**2, centered=False),
            max_grad_norm=40 / rows,
        ),
        actor_factory=OnPolicyActor.create_factory(feature_extractor="nature_cnn", hidden_sizes=(), shared_body=True),
        storage_factory=VTraceBuffer.create_factory(size=num_steps),
        num_collectors=num_collectors,
        communication="asynchronous",
        slice_steps=num_steps,
        slices_at_once=num_slices,
    )


def a3c(num_gradient_workers: int = 16) -> DistributedPreset:
    """Mnih et al., "Asynchronous Methods" (arXiv 1602.01783), algorithm S3: asynchronous gradients of 5 steps.

    RMSprop's epsilon is the 0.1 of the authors' runs. They summed losses over the steps, and here these are means, so
    it is divided by the steps' square.

    Args:
        num_gradient_workers: processes, each in one environment.
    """
    num_steps = 5
    return DistributedPreset(
        algo_factory=A2C.create_factory(
            lr=LinearSchedule(7e-4, 0.0), optimizer=RMSprop(alpha=0.99, eps=0.1 / num_steps**2, centered=False)
        ),
        actor_factory=OnPolicyActor.create_factory(feature_extractor="nature_cnn", hidden_sizes=(), shared_body=True),
        storage_factory=VanillaOnPolicyBuffer.create_factory(size=num_steps),
        num_gradient_workers=num_gradient_workers,
        communication="asynchronous",
    )


def nsq(num_gradient_workers: int = 16) -> DistributedPreset:
    """Mnih et al., "Asynchronous Methods" (arXiv 1602.01783), algorithm S2: n-step Q-learning.

    RMSprop's epsilon is the 0.1 of the authors' runs. The final epsilon of exploration is 0.1 for four of ten workers,
    0.01 for three and 0.5 for three, the probabilities with which the paper samples it.

    Args:
        num_gradient_workers: processes, each in one environment.
    """
    final = (0.1, 0.01, 0.5, 0.1, 0.01, 0.5, 0.1, 0.01, 0.5, 0.1)
    explorers = tuple(
        EpsilonGreedy(LinearSchedule(1.0, final[worker % len(final)], fraction=0.05))
        for worker in range(num_gradient_workers)
    )
    return DistributedPreset(
        algo_factory=NStepQLearning.create_factory(
            lr=LinearSchedule(7e-4, 0.0),
            optimizer=RMSprop(alpha=0.99, eps=0.1, centered=False),
            target_update_interval_steps=40_000,
        ),
        actor_factory=OffPolicyActor.create_factory(feature_extractor="nature_cnn", hidden_sizes=()),
        storage_factory=VanillaOnPolicyBuffer.create_factory(size=5),
        num_gradient_workers=num_gradient_workers,
        communication="asynchronous",
        explorers=explorers,
    )


def dd_ppo(num_gradient_workers: int = 8) -> DistributedPreset:
    """Wijmans et al., "DD-PPO" (arXiv 1911.00357): synchronous workers, with preemption of stragglers.

    The learner's process averages the gradients, where the workers in the paper use an all-reduce. As in the paper,
    advantages are not normalised.

    Args:
        num_gradient_workers: processes, each in the environments of ``train_envs_factory`` (4 in the paper).
    """
    return DistributedPreset(
        algo_factory=PPO.create_factory(
            lr=2.5e-4,
            num_epochs=2,
            num_mini_batch=2,
            entropy_coef=0.01,
            max_grad_norm=0.2,
            normalize_advantages=False,
        ),
        actor_factory=OnPolicyActor.create_factory(feature_extractor="nature_cnn", hidden_sizes=(), shared_body=True),
        storage_factory=GAEBuffer.create_factory(size=128, gae_lambda=0.95),
        num_gradient_workers=num_gradient_workers,
        communication="synchronous",
        preemption=0.6,
    )


def gorila(num_gradient_workers: int = 100, capacity: int = 1_000_000) -> DistributedPreset:
    """Nair et al., "Massively Parallel Methods for Deep Reinforcement Learning" (arXiv 1507.04296), bundled mode.

    Each bundle collects, has a separate replay memory and computes gradients of it, which are applied asynchronously.
    Apart from the period of the target network, settings, such as the optimizer's, are those of :meth:`DQN.nature`.

    Args:
        num_gradient_workers: number of bundles, each in one environment.
        capacity: of each replay memory, in transitions.
    """
    preset = DQN.nature(capacity)
    changed = {"target_update_interval": 60_000}
    return DistributedPreset(
        algo_factory=DQN.create_factory(**(preset["algo_factory"].hyper_parameters | changed)),
        actor_factory=preset["actor_factory"],
        storage_factory=preset["storage_factory"],
        num_gradient_workers=num_gradient_workers,
        communication="asynchronous",
    )


def sac_distributed(num_collectors: int = 8, capacity: int = 1_000_000) -> DistributedPreset:
    """Haarnoja et al., "Soft Actor-Critic" (arXiv 1812.05905), with asynchronous collectors.

    One update for each transition, as in the paper; for vector observations and continuous actions.

    Args:
        num_collectors: processes that collect, each in one environment.
        capacity: of the storage, in transitions.
    """
    return DistributedPreset(
        algo_factory=SAC.create_factory(start_steps=10_000),
        actor_factory=OffPolicyActor.create_factory(hidden_sizes=(256, 256)),
        storage_factory=ReplayBuffer.create_factory(size=capacity),
        num_collectors=num_collectors,
        communication="asynchronous",
        slice_steps=10,
    )


def ape_x(num_collectors: int = 360, capacity: int = 2_000_000, num_replay_shards: int = 4) -> DistributedPreset:
    """Horgan et al., "Distributed Prioritized Experience Replay" (arXiv 1803.00933): DQN, shared prioritised replay.

    Each collector has its own epsilon, and computes initial priorities. An update with 512 transitions is made every
    650 transitions, the ratio of the paper's 12,500 transitions and 19 updates per second.

    Args:
        num_collectors: processes that collect, each in one environment.
        capacity: of the replay memory, in transitions.
        num_replay_shards: processes among which the memory is divided; 0 keeps it in the learner's process.
    """
    return DistributedPreset(
        algo_factory=DQN.create_factory(
            lr=2.5e-4 / 4,
            optimizer=RMSprop(alpha=0.95, eps=1.5e-7, centered=True),
            explorer=ApeXEpsilonGreedy(0.4, 7.0),
            start_steps=50_000,
            update_every=650,
            mini_batch_size=512,
            polyak=0.0,
            target_update_interval=2_500,
            max_grad_norm=40.0,
        ),
        actor_factory=OffPolicyActor.create_factory(feature_extractor="nature_cnn", hidden_sizes=(), dueling=True),
        storage_factory=PERBuffer.create_factory(
            size=capacity, n_step=3, alpha=0.6, beta=0.4, default_error="largest", weights_over="batch"
        ),
        num_collectors=num_collectors,
        communication="asynchronous",
        slice_steps=50,
        num_replay_shards=num_replay_shards,
        initial_priorities=True,
    )


def r2d2(num_collectors: int = 256, capacity: int = 4_000_000, num_replay_shards: int = 4) -> DistributedPreset:
    """Kapturowski et al., "Recurrent Experience Replay" (openreview r1lyTjAqYX): recurrent Ape-X.

    Sequences have 40 steps of burn-in and 80 for learning; a slice of 400 steps holds several.

    Args:
        num_collectors: processes that collect, each in one environment.
        capacity: of the replay memory, in transitions.
        num_replay_shards: processes among which the memory is divided; 0 keeps it in the learner's process.
    """
    preset = R2D2.paper(capacity, num_envs=1)
    return DistributedPreset(
        algo_factory=preset["algo_factory"],
        actor_factory=preset["actor_factory"],
        storage_factory=preset["storage_factory"],
        num_collectors=num_collectors,
        communication="asynchronous",
        slice_steps=400,
        num_replay_shards=num_replay_shards,
        initial_priorities=True,
    )

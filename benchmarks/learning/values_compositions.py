"""Compositions for ``learning_page.py values``: the settings that all algorithms share, and those of each."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytorchrl as prl
from benchmarks.learning.learning_task import Composition, Page, Task
from pytorchrl.agent.algorithms.off_policy import Preset
from storages.component.factory import make_factory

_CARTPOLE_RATE = prl.LinearSchedule(1e-3, 0.0)
"""Learning rates fall to 0, so that policies settle."""
_CARTPOLE: dict[str, Any] = {"update_every": 2, "mini_batch_size": 64, "test_every": 0}
_CARTPOLE_SIZES = (128, 128)
# The range of returns with a reward of 1 per step and a discount factor of 0.99.
_CARTPOLE_RETURNS: dict[str, Any] = {"v_min": 0.0, "v_max": 100.0}
# At the common learning rate, the quantiles had reached 70% of the return after 60,000 steps.
_CARTPOLE_FRACTIONS: dict[str, Any] = {
    "num_quantiles": 16,
    "num_target_quantiles": 16,
    "lr": prl.LinearSchedule(2e-3, 0.0),
}
CARTPOLE_WORDS = (
    "All have two layers of 128 units and learn from 64 transitions of 3 steps after every 2 steps, at a rate that "
    "falls from 0.001 to 0, of implicit quantiles from 0.002. Exceptions are `NStepQLearning`, with segments of 5 "
    "steps of 4 environments, `PQN`, with rollouts of 16 steps of 8 environments and a lambda of 0.65, both with "
    "normalised layers, `AL` and `DPP`, whose layers are normalised, the latter's average soft (eta of 0.03), and the "
    "presets `Rainbow.small()`, with that rate and as many updates, and `R2D2.small()`."
)

FRAMES_BETWEEN_UPDATES = 4
FRAMES_BETWEEN_TARGETS = 1_000
BREAKOUT_SETTINGS: dict[str, Any] = {
    "gamma": 0.99,
    "lr": 2.5e-4,
    "adam_eps": 3.125e-4,
    "epsilon_fraction": 1 / 3,
    "final_epsilon": 0.01,
    "start_steps": 1_000,
    "mini_batch_size": 32,
    "buffer_size": 100_000,
    "max_grad_norm": 10.0,
    "num_quantiles": 50,
}
"""What our algorithms on Breakout share with their peers: the values of Obando-Ceron and Castro, "Revisiting Rainbow"
(arXiv 2011.14826), for DQN in 10 million frames; epsilon falls in 100,000 frames, as of Young and Tian, "MinAtar"
(arXiv 1903.03176)."""
_BREAKOUT_RAINBOW_NETWORK = prl.OffPolicyActor.create_factory(
    hidden_sizes=(), feature_extractor="small_cnn", dueling=True, noisy=True
)
_BREAKOUT_FRACTIONS: dict[str, Any] = {"num_quantiles": 32, "num_target_quantiles": 32}
BREAKOUT_WORDS = (
    "All, the peers too, have one convolution of 16 filters and a layer of 128 units, and the settings of Obando-Ceron "
    "and Castro (arXiv 2011.14826) for DQN: 32 transitions of the last 100,000 after every 4 frames, a target network "
    "that is copied every 1,000 frames, Adam at a rate of 0.00025 with an epsilon of 0.0003125. The share of random "
    "actions falls from all to 1% in 100,000 frames. `Rainbow` is the preset `Rainbow.small()` with that network, "
    "dueling and noisy, 32 transitions an update and returns from 0 to 20; beside its own parts, it has what "
    "the preset chooses for small budgets: an update after every 2 frames, at a rate that falls from 0.001 to 0. "
    "The environment has six actions, and repeats the last one with probability 0.1, in the evaluation too."
)


def cartpole(
    algorithm: type[prl.OffPolicyAlgorithm],
    *,
    rates: Sequence[str] = ("lr",),
    buffer_size: int = 60_000,
    layer_norm: bool = False,
    **settings: Any,
) -> Composition:
    """Return an algorithm that learns from replayed transitions, with settings that differ from the common ones.

    Args:
        algorithm: class of the algorithm.
        rates: names of its learning rates.
        buffer_size: transitions in the replay buffer.
        layer_norm: normalise the network's layers.
        settings: further hyper-parameters.
    """

    def compose() -> Preset:
        shared = _CARTPOLE | dict.fromkeys(rates, _CARTPOLE_RATE)
        return Preset(
            algo_factory=make_factory(algorithm, (), shared | settings),
            actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=_CARTPOLE_SIZES, layer_norm=layer_norm),
            storage_factory=prl.NStepReplayBuffer.create_factory(size=buffer_size, n_step=3),
        )

    return Composition(compose)


def cartpole_on_policy(
    algorithm: type[prl.Algorithm], storage: prl.Factory[prl.Storage], *, num_envs: int, **settings: Any
) -> Composition:
    """Return an algorithm that learns from rollouts."""

    def compose() -> Preset:
        return Preset(
            algo_factory=make_factory(algorithm, (), {"test_every": 0} | settings),
            actor_factory=prl.OnPolicyActor.create_factory(hidden_sizes=_CARTPOLE_SIZES, layer_norm=True),
            storage_factory=storage,
        )

    return Composition(compose, num_envs)


def preset(
    make: Callable[..., Preset],
    *,
    num_envs: int = 1,
    actor_factory: prl.Factory[prl.Actor] | None = None,
    callbacks: Callable[[], Sequence[prl.Callback]] = tuple,
    **settings: Any,
) -> Composition:
    """Return a preset of an algorithm, with another actor, callbacks and other settings of the algorithm."""

    def compose() -> Preset:
        made = make(num_envs=num_envs)
        algo_factory = made["algo_factory"]
        changed = algo_factory.hyper_parameters | {"test_every": 0} | settings
        made |= {"algo_factory": make_factory(algo_factory.cls, (), changed)}
        return made if actor_factory is None else made | {"actor_factory": actor_factory}

    return Composition(compose, num_envs, callbacks=callbacks)


def pendulum(algorithm: type[prl.OffPolicyAlgorithm], **settings: Any) -> Composition:
    """Return an algorithm for continuous actions."""

    def compose() -> Preset:
        return Preset(
            algo_factory=algorithm.create_factory(
                lr=prl.LinearSchedule(1e-3, 0.0), gamma=0.98, polyak=0.99, test_every=0, **settings
            ),
            actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=(128, 128)),
            storage_factory=prl.ReplayBuffer.create_factory(size=20_000),
        )

    return Composition(compose)


def breakout(algorithm: type[prl.DQN], **settings: Any) -> Composition:
    """Return a variant of DQN, with settings that differ from the common ones."""

    def compose() -> Preset:
        shared = BREAKOUT_SETTINGS
        algo_factory = algorithm.create_factory(
            **{
                "gamma": shared["gamma"],
                "lr": shared["lr"],
                "optimizer": prl.Adam(eps=shared["adam_eps"]),
                "epsilon": prl.LinearSchedule(1.0, shared["final_epsilon"], fraction=shared["epsilon_fraction"]),
                "start_steps": shared["start_steps"],
                "update_every": FRAMES_BETWEEN_UPDATES,
                "mini_batch_size": shared["mini_batch_size"],
                "polyak": 0.0,
                "target_update_interval": FRAMES_BETWEEN_TARGETS // FRAMES_BETWEEN_UPDATES,
                "max_grad_norm": shared["max_grad_norm"],
                "test_every": 0,
            }
            | settings
        )
        return Preset(
            algo_factory=algo_factory,
            # The network of Young and Tian: nothing between its 128 features and the head.
            actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=(), feature_extractor="small_cnn"),
            storage_factory=prl.ReplayBuffer.create_factory(size=shared["buffer_size"]),
        )

    return Composition(compose)


CARTPOLE_COMPOSITIONS: Mapping[str, Composition] = {
    "DQN": cartpole(prl.DQN),
    # It evaluates the behaviour policy, which should be close to the current greedy one.
    "SARSA": cartpole(prl.SARSA, buffer_size=10_000, epsilon=prl.LinearSchedule(1.0, 0.02, fraction=0.2)),
    "ResidualDQN": cartpole(prl.ResidualDQN),
    # Gaps reach a third of the largest return. Without normalised layers, values of the few steps that end an episode,
    # which Huber's loss counts little, grew beyond any return, and with them those of the steps before.
    "AL": cartpole(prl.AL, layer_norm=True),
    "PAL": cartpole(prl.PAL),
    "DoublePAL": cartpole(prl.DoublePAL),
    # Where the average over actions is soft, preferences grow more slowly, so that they can be learnt; layers are
    # normalised as those of AL. With squares in the place of Huber's loss three seeds had 433 to 480, and not 500.
    "DPP": cartpole(prl.DPP, layer_norm=True, eta=0.03, target_update_interval=150),
    "CategoricalDQN": cartpole(prl.CategoricalDQN, **_CARTPOLE_RETURNS),
    "QRDQN": cartpole(prl.QRDQN, num_quantiles=20),
    "IQN": cartpole(prl.IQN, **_CARTPOLE_FRACTIONS),
    "MunchausenDQN": cartpole(prl.MunchausenDQN),
    "MunchausenIQN": cartpole(prl.MunchausenIQN, **_CARTPOLE_FRACTIONS),
    # It uses each step once, without the mixing of a replay buffer: layers are normalised.
    "NStepQLearning": cartpole_on_policy(
        prl.NStepQLearning,
        prl.VanillaOnPolicyBuffer.create_factory(size=5),
        num_envs=4,
        lr=prl.LinearSchedule(2e-3, 0.0),
        target_update_interval_steps=200,
    ),
    # There is no target network: layers are normalised.
    "PQN": cartpole_on_policy(
        prl.PQN,
        prl.LambdaReturnBuffer.create_factory(size=16, trace_lambda=0.65),
        num_envs=8,
        lr=prl.LinearSchedule(1e-3, 0.0),
        epsilon=prl.LinearSchedule(1.0, 0.05, fraction=0.2),
    ),
    "Rainbow": preset(prl.Rainbow.small),
    "R2D2": preset(prl.R2D2.small, num_envs=4),
    # With two actions, a target entropy near that of a coin would make the better one hardly more frequent.
    "SACDiscrete": cartpole(
        prl.SACDiscrete, rates=("lr_pi", "lr_q"), polyak=0.99, initial_alpha=0.2, target_entropy_share=0.3
    ),
}

PENDULUM_COMPOSITIONS: Mapping[str, Composition] = {"NAF": pendulum(prl.NAF), "QtOpt": pendulum(prl.QtOpt)}
PENDULUM_WORDS = (
    "The settings of `examples/naf_pendulum.py`: rewards are multiplied by 0.1 while it learns; the returns are the "
    "environment's own. `QtOpt` explores by random actions, whose share falls from 1 to 0.05 in the first fifth. "
    "Its runs shared their processor with other programs; beside each other, `NAF` makes ten times as many steps per "
    "second."
)

BREAKOUT_COMPOSITIONS: Mapping[str, Composition] = {
    "DQN": breakout(prl.DQN, double=False),
    "double DQN": breakout(prl.DQN, double=True),
    "CategoricalDQN": breakout(prl.CategoricalDQN, double=False),
    "QRDQN": breakout(prl.QRDQN, double=False, num_quantiles=BREAKOUT_SETTINGS["num_quantiles"]),
    "IQN": breakout(prl.IQN, **_BREAKOUT_FRACTIONS),
    "MunchausenDQN": breakout(prl.MunchausenDQN),
    "MunchausenIQN": breakout(prl.MunchausenIQN, **_BREAKOUT_FRACTIONS),
    "Rainbow": preset(
        prl.Rainbow.small,
        actor_factory=_BREAKOUT_RAINBOW_NETWORK,
        mini_batch_size=BREAKOUT_SETTINGS["mini_batch_size"],
        v_max=20.0,
    ),
}

VALUES = Page(
    title="Results of the value-based algorithms",
    target="learning-values",
    compositions="values_compositions.py",
    tasks={
        "cartpole": Task(
            env="CartPole-v1",
            target_steps=60_000,
            seeds=(1, 2, 3),
            episodes=20,
            summary="median",
            compositions=CARTPOLE_COMPOSITIONS,
            threshold=450.0,
            settings=CARTPOLE_WORDS,
        ),
        "pendulum": Task(
            env="Pendulum-v1",
            target_steps=20_000,
            seeds=(1, 2, 3),
            episodes=20,
            summary="median",
            compositions=PENDULUM_COMPOSITIONS,
            threshold=-200.0,
            settings=PENDULUM_WORDS,
            wrappers=(("ScaleReward", {"factor": 0.1}),),
        ),
        "breakout": Task(
            env="pytorchrl/MinAtar-Breakout-v0",
            target_steps=300_000,
            seeds=(1, 2),
            episodes=100,
            summary="mean",
            compositions=BREAKOUT_COMPOSITIONS,
            peers={"DQN of stable-baselines3": "stable_baselines3", "QRDQN of sb3-contrib": "sb3_contrib"},
            peer_module="benchmarks.learning.breakout_peers",
            settings=BREAKOUT_WORDS,
            env_kwargs={"max_episode_steps": 5_000},  # for greedy policies that never lose
            package="minatar",
        ),
    },
)

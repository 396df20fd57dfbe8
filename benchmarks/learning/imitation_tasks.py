"""Tasks of ``learning_page.py imitation``: experts, the algorithms that learn from them, and their settings."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pytorchrl as prl
from benchmarks.learning.staged_runs import Stage, StagedPage, StagedTask
from pytorchrl.experiments import collect_demonstrations
from storages.component.factory import Factory


def swing_up(seen: NDArray[np.floating]) -> NDArray[np.float32]:
    """Swing up and balance Pendulum, by an energy controller."""
    cosine, sine, velocity = seen.T
    angle = np.arctan2(sine, cosine)
    lacking = velocity**2 / 6 + 5 * (cosine - 1)
    torque = np.where(np.abs(angle) < 0.35, -14 * angle - 3.5 * velocity, -2 * np.sign((velocity + 1e-9) * lacking))
    return np.clip(torque, -2, 2).astype(np.float32)[:, None]


class GAILOnPPO(prl.GAILReward, prl.PPO):
    """GAIL, with PPO."""


class AIRLOnPPO(prl.AIRLReward, prl.PPO):
    """AIRL, with PPO."""


def _shown(folder: Path, name: str, expert: Any, env: str, episodes: int, seed: int) -> Path:
    """Return the data set of an expert, which is recorded once."""
    path = folder / f"{name}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        collect_demonstrations(expert, prl.VecEnv.create_factory(env), path=path, episodes=episodes, seed=seed)
    return path


def _source(path: Path, size: int = 20_000) -> Any:
    return prl.from_dataset(prl.ReplayBuffer.create_factory(size=size), path)


# A sparse maze


_MAZE = "pytorchrl/SparseMaze-v0"
_OF_MAZE: Mapping[str, Any] = {"lr": 1e-3, "entropy_coef": 0.01, "test_every": 0}


def _maze(with_demonstrations: bool) -> Callable[[Path, int], prl.Scheme]:
    def compose(folder: Path, seed: int) -> prl.Scheme:
        rollout, sources = prl.GAEBuffer.create_factory(size=128), {}
        if with_demonstrations:
            shown = _shown(folder, "three-episodes", prl.SparseMaze().shortest_way, _MAZE, 3, seed)
            sources = {"demonstrations": _source(shown), "repeated": rollout}
        algorithm = prl.PPOD if with_demonstrations else prl.PPO
        envs = prl.VecEnv.create_factory(_MAZE, num_envs=8)
        actor = prl.OnPolicyActor.create_factory()
        return prl.Scheme(algorithm.create_factory(**_OF_MAZE), actor, rollout, envs, sources=sources, seed=seed)

    return compose


# Labels of an expert


_UPDATES = 6_000
_CLONING: Mapping[str, Any] = {"lr": prl.LinearSchedule(1e-3, 0.0), "mini_batch_size": 64, "test_every": 0}


def _cloning(episodes: int) -> Callable[[Path, int], prl.Scheme]:
    def compose(folder: Path, seed: int) -> prl.Scheme:
        shown = _shown(folder, f"{episodes}-episodes", swing_up, "Pendulum-v1", episodes, seed)
        return prl.Scheme(
            prl.BehaviourCloning.create_factory(**_CLONING),
            prl.OffPolicyActor.create_factory(hidden_sizes=(64, 64)),
            _source(shown),
            test_envs_factory=prl.VecEnv.create_factory("Pendulum-v1"),
            seed=seed,
        )

    return compose


def _dagger(episodes: int) -> Callable[[Path, int], prl.Scheme]:
    labels, start = 200 * episodes, 100 * episodes

    def compose(folder: Path, seed: int) -> prl.Scheme:
        settings = dict(_CLONING) | {"start_steps": start, "num_mini_batch": math.ceil(_UPDATES / (labels - start))}
        return prl.Scheme(
            prl.DAgger.create_factory(expert=swing_up, **settings),
            prl.OffPolicyActor.create_factory(hidden_sizes=(64, 64)),
            prl.ReplayBuffer.create_factory(size=labels),
            prl.VecEnv.create_factory("Pendulum-v1"),
            seed=seed,
        )

    return compose


# A learnt reward, and a new policy trained on it


_SWINGING: Mapping[str, Any] = {
    "lr": 1e-3,
    "num_epochs": 10,
    "gamma": 0.9,
    # The controller often acts at the bounds, where the density of an unsquashed Gaussian is negligible.
    "distribution": prl.heads.BetaPolicy(),
    "test_every": 0,
}
_DISCRIMINATOR: Mapping[str, Any] = {"discriminator_epochs": 5}
_ON_PENDULUM = 160_000


def _pendulum(algorithm: Any, **settings: Any) -> Callable[[Path, int], prl.Scheme]:
    def compose(folder: Path, seed: int) -> prl.Scheme:
        return prl.Scheme(
            algorithm.create_factory(**_SWINGING, **settings),
            prl.OnPolicyActor.create_factory(hidden_sizes=(64, 64)),
            prl.GAEBuffer.create_factory(size=256),
            prl.VecEnv.create_factory("Pendulum-v1", num_envs=8),
            sources={"expert": _source(_shown(folder, "ten-episodes", swing_up, "Pendulum-v1", 10, seed))},
            seed=seed,
        )

    return compose


def _anew(algorithm: Factory[Any], actor: Factory[Any], storage: Factory[Any], num_envs: int = 1) -> Any:
    """Return a stage that trains another algorithm on the learnt reward of a run, frozen."""

    def compose(folder: Path, seed: int) -> prl.Scheme:
        reward = prl.LearntReward(str(folder / _REWARDING))
        # Other weights than those that the reward was learnt with.
        train_envs = prl.VecEnv.create_factory("Pendulum-v1", num_envs=num_envs, wrappers=[reward])
        test_envs = prl.VecEnv.create_factory("Pendulum-v1")
        return prl.Scheme(algorithm, actor, storage, train_envs, test_envs, seed=seed + 100)

    return compose


_REWARDING = "AIRL on PPO"
_RATES = ("lr_pi", "lr_q", "lr_alpha")
_SAC_ANEW = _anew(
    prl.SAC.create_factory(gamma=0.98, mini_batch_size=128, polyak=0.99, test_every=0, **dict.fromkeys(_RATES, 1e-3)),
    prl.OffPolicyActor.create_factory(hidden_sizes=(64, 64)),
    prl.ReplayBuffer.create_factory(size=20_000),
)
_PPO_ANEW = _anew(
    prl.PPO.create_factory(**_SWINGING),
    prl.OnPolicyActor.create_factory(hidden_sizes=(64, 64)),
    prl.GAEBuffer.create_factory(size=256),
    num_envs=8,
)


# Hopper


def _hopper_expert(folder: Path, seed: int) -> prl.Scheme:
    return prl.Scheme(
        prl.SAC.create_factory(start_steps=10_000, lr_pi=3e-4, lr_q=3e-4, lr_alpha=3e-4, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(256, 256)),
        prl.ReplayBuffer.create_factory(size=1_000_000),
        prl.VecEnv.create_factory("Hopper-v5"),
        seed=seed,
    )


def _hopper(algorithm: Any, **settings: Any) -> Callable[[Path, int], prl.Scheme]:
    def compose(folder: Path, seed: int) -> prl.Scheme:
        factory: Factory[Any] = algorithm.create_factory(gamma=0.995, test_every=0, **settings)
        shown = _shown(folder, "four-episodes", folder / "expert", "Hopper-v5", 4, seed)
        return prl.Scheme(
            factory,
            prl.OnPolicyActor.create_factory(hidden_sizes=(64, 64), normalize_observations=True),
            prl.GAEBuffer.create_factory(size=625, gae_lambda=0.97),
            prl.VecEnv.create_factory("Hopper-v5", num_envs=8),
            sources={"expert": _source(shown)},
            seed=seed,
        )

    return compose


_RANDOM, _CONTROLLED = -1_210.0, -145.5
"""Mean returns on Pendulum over 200 episodes: of random actions, and of the controller, the latter within 6."""

_TASKS: Mapping[str, StagedTask] = {
    "maze": StagedTask(
        title="Maze with sparse rewards",
        env=_MAZE,
        question="Does `PPOD` solve from three demonstrations what `PPO` does not? Returns are shares of successes.",
        stages=(
            Stage("PPO", 100_000, _maze(with_demonstrations=False), "none"),
            Stage("PPOD", 100_000, _maze(with_demonstrations=True), "3 episodes of 41 to 48"),
        ),
        random_return=0.0,
        expert_return=1.0,
    ),
    "pendulum": StagedTask(
        title="DAgger on Pendulum-v1",
        env="Pendulum-v1",
        question=(
            "Does `DAgger` beat `BehaviourCloning` at equal labels? The expert is a controller of energy; both make "
            f"{_UPDATES:,} updates of 64 labels at rates that fall to 0. `DAgger` lets the expert act for the first "
            "half of its labels."
        ),
        stages=tuple(
            stage
            for episodes in (1, 2, 4)
            for stage in (
                Stage(
                    f"BehaviourCloning of {200 * episodes}", _UPDATES, _cloning(episodes), f"{200 * episodes} labels"
                ),
                Stage(f"DAgger of {200 * episodes}", 200 * episodes, _dagger(episodes), f"{200 * episodes} labels"),
            )
        ),
        random_return=_RANDOM,
        expert_return=_CONTROLLED,
        episodes=50,
    ),
    "reward": StagedTask(
        title="Reward learning on Pendulum-v1",
        env="Pendulum-v1",
        question=(
            "Does another policy come to 80% of the expert on the reward that `AIRL` has learnt, of the state alone, "
            "once it is frozen? The expert is the controller of energy. `GAIL` and `AIRL` have Beta policies and the "
            "settings of PPO, which is trained anew, too. `SAC` explores more: a reward is known only where expert and "
            "policy have been, and a policy may settle elsewhere."
        ),
        stages=(
            Stage("GAIL on PPO", _ON_PENDULUM, _pendulum(GAILOnPPO, **_DISCRIMINATOR), "10 episodes of 200"),
            Stage(
                _REWARDING,
                _ON_PENDULUM,
                _pendulum(AIRLOnPPO, reward_of="state", **_DISCRIMINATOR),
                "10 episodes of 200",
            ),
            Stage("SAC on AIRL's reward", 8_000, _SAC_ANEW, "none"),
            Stage("PPO on AIRL's reward", _ON_PENDULUM, _PPO_ANEW, "none"),
        ),
        random_return=_RANDOM,
        expert_return=_CONTROLLED,
        episodes=50,
    ),
    "style": StagedTask(
        title="Style on Pendulum-v1",
        env="Pendulum-v1",
        question=(
            "Does `AMP` come to 80% of the expert by the style reward alone, of successive observations? It has the "
            "demonstrations and settings of `GAIL on PPO` above, and does not use the demonstrations' actions."
        ),
        stages=(
            Stage(
                "AMP",
                _ON_PENDULUM,
                _pendulum(prl.AMP, task_coef=0.0, style_coef=1.0, **_DISCRIMINATOR),
                "10 episodes of 200",
            ),
        ),
        random_return=_RANDOM,
        expert_return=_CONTROLLED,
        episodes=50,
    ),
    "hopper": StagedTask(
        title="GAIL on Hopper-v5",
        env="Hopper-v5",
        question=(
            "Does `GAIL` come to 90% of its expert, which is trained by `SAC` and shown in four episodes? It is run on "
            "TRPO, as in the paper, and on PPO."
        ),
        stages=(
            Stage("expert", 150_000, _hopper_expert, "none"),
            Stage("GAIL", 2_000_000, _hopper(prl.GAIL, lr_discriminator=3e-4, **_DISCRIMINATOR), "4 episodes"),
            Stage(
                "GAIL on PPO",
                2_000_000,
                _hopper(GAILOnPPO, num_epochs=10, num_mini_batch=32, lr_discriminator=3e-4, **_DISCRIMINATOR),
                "4 episodes",
            ),
        ),
        random_return=18.0,
    ),
}

IMITATION = StagedPage(
    "imitation", "Results of imitation learning", "imitation_tasks.py", _TASKS, ("maze", "pendulum", "reward", "style")
)

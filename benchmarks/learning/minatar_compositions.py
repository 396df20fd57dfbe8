"""Compositions for ``learning_page.py minatar``: four algorithms in the five games of MinAtar."""

import pytorchrl as prl
from benchmarks.learning.learning_task import Composition, Page, Task
from benchmarks.learning.preset_compositions import of_preset
from pytorchrl.agent.algorithms.off_policy import Preset

GAMES = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
_FRAMES = 1_000_000
_SEEDS = (1, 2)
_RATE = prl.LinearSchedule(5e-4, 0.0)


def _pqn() -> Composition:
    """Return PQN, after Gallici et al. (arXiv 2407.04811), with fewer environments, as there are fewer frames."""

    def compose() -> Preset:
        return Preset(
            algo_factory=prl.PQN.create_factory(
                lr=_RATE,
                optimizer=prl.TorchOptimizer("RAdam"),
                epsilon=prl.LinearSchedule(1.0, 0.05, fraction=0.1),
                num_epochs=2,
                num_mini_batch=32,
                max_grad_norm=10.0,
                test_every=0,
            ),
            actor_factory=prl.OnPolicyActor.create_factory(
                feature_extractor="small_convolutions", hidden_sizes=(128,), layer_norm=True
            ),
            storage_factory=prl.LambdaReturnBuffer.create_factory(size=32, trace_lambda=0.65),
        )

    return Composition(compose, num_envs=32)


def _ppo() -> Composition:
    def compose() -> Preset:
        return Preset(
            algo_factory=prl.PPO.create_factory(
                lr=prl.LinearSchedule(1e-3, 0.0), num_epochs=4, num_mini_batch=4, entropy_coef=0.01, test_every=0
            ),
            actor_factory=prl.OnPolicyActor.create_factory(feature_extractor="small_cnn", hidden_sizes=()),
            storage_factory=prl.GAEBuffer.create_factory(size=128),
        )

    return Composition(compose, num_envs=16)


def _task(game: str) -> Task:
    env = f"pytorchrl/MinAtar-{game}-v0"
    return Task(
        env=env,
        target_steps=_FRAMES,
        seeds=_SEEDS,
        episodes=100,
        summary="interval",
        compositions={
            "DQN": of_preset("DQN", env, _FRAMES),
            "Rainbow": of_preset("Rainbow", env, _FRAMES),
            "PQN": _pqn(),
            "PPO": _ppo(),
        },
        env_kwargs={"max_episode_steps": 5_000},  # for greedy policies that never lose
        package="minatar",
    )


MINATAR = Page(
    title="Four algorithms in MinAtar",
    target="learning-minatar",
    compositions="minatar_compositions.py",
    about=(
        "The five games of Young and Tian (arXiv 1903.03176), for a million frames, with sticky actions of probability "
        "0.1 and six actions in all games. DQN and Rainbow have their presets, PQN the settings that Gallici et al. "
        "(arXiv 2407.04811) have for these games, with 32 environments instead of 128 and a convolution that is not "
        "normalised, PPO 16 environments, 128 steps, and a rate that falls from 0.001 to 0. All have one convolution "
        "of 16 filters and a layer of 128 units."
    ),
    tasks={game.lower(): _task(game) for game in GAMES},
)

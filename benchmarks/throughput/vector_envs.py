"""PPO with native vector environments: beside stable-baselines3 and rlox, and beside CleanRL on Atari.

CartPole: 64 of gymnasium's own vector environment, 128 steps, 4 epochs of 4 batches, layers of 64 units; the
update alone is timed in the same runs, too. stable-baselines3 has 64 Python environments, as its package makes
them; rlox has its environments in Rust. Atari: Breakout in EnvPool, at the settings of CleanRL's script.

Everything has one torch thread, and repetitions alternate. Times are processor times of all threads, which other work
on the machine affects less.
"""

import gc
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
import tyro
from rich.console import Console

import pytorchrl as prl
from benchmarks.shared.rounds import Goal, Rounds, in_turn, machine

_NUM_ENVS, _STEPS, _EPOCHS, _BATCHES = 64, 128, 4, 4
_ROLLOUT = _NUM_ENVS * _STEPS
_LR, _ENTROPY = 1e-3, 0.01


@dataclass
class Arguments:
    """What to measure."""

    only: Literal["cartpole", "atari"] | None = None
    """Measure one task alone."""
    repetitions: int = 5
    """Repetitions of each library."""
    rollouts: int = 12
    """Rollouts of CartPole that are timed in each repetition."""
    atari_rollouts: int = 2
    """Rollouts of Breakout that are timed in each repetition."""
    json: Path | None = None
    """Write the figures here too."""


def main(arguments: Arguments) -> None:
    """Measure, print, and write."""
    torch.set_num_threads(1)
    console = Console(width=None if sys.stdout.isatty() else 120)
    about = machine("torch", "stable-baselines3", "rlox", "gymnasium", "envpool")
    console.print(", ".join(f"{name} {value}" for name, value in about.items()), highlight=False)
    measured = []
    if arguments.only != "atari":
        measured.append(_cartpole(arguments))
    if arguments.only != "cartpole":
        if find_spec("envpool") is None:
            console.print("Atari is left out: the package envpool is not installed")
        else:
            measured.append(_atari(arguments))
    for rounds in measured:
        rounds.print(console)
    if arguments.json is not None:
        arguments.json.write_text(
            json.dumps({"machine": about} | {one.title: one.figures() for one in measured}, indent=2) + "\n"
        )


def _cartpole(arguments: Arguments) -> Rounds:
    """Microseconds of the processor for each environment step."""
    count = arguments.rollouts
    alone: list[float] = []
    work: dict[str, Callable[[], float]] = {"pytorchrl": partial(_ours, _cartpole_scheme, count, alone)}
    if find_spec("stable_baselines3") is not None:
        work["stable-baselines3"] = partial(_stable_baselines3, count)
    if find_spec("rlox") is not None:
        work["rlox"] = partial(_rlox, count)
    rows = in_turn(work, arguments.repetitions)
    rows["pytorchrl, its update alone"] = alone
    rounds = Rounds(
        f"PPO on CartPole, {_NUM_ENVS} environments, {_STEPS} steps, {_EPOCHS} epochs of {_BATCHES} batches",
        "microseconds a step",
        lambda figure: f"{figure:.2f}",
        rows,
    )
    share = rounds.ratio("pytorchrl", "pytorchrl, its update alone")
    rounds.goals.append(Goal("at most 1.5 times its update alone", f"{share:.2f} times", share <= 1.5))
    for other, factor in (("stable-baselines3", 2.5), ("rlox", 2.0)):
        if other in rows:
            speed = rounds.ratio(other, "pytorchrl")
            rounds.goals.append(Goal(f"at least {factor:g} times as fast as {other}", f"{speed:.2f}", speed >= factor))
    return rounds


def _atari(arguments: Arguments) -> Rounds:
    from benchmarks.throughput.peer_cleanrl_envpool import Settings, cleanrl_ppo_envpool

    settings = Settings()
    rollout = settings.num_envs * settings.num_steps
    alone: list[float] = []

    def cleanrl() -> float:
        train = cleanrl_ppo_envpool("Breakout-v5", 0, settings)
        return _timed(lambda: train(rollout), arguments.atari_rollouts, rollout)

    work: dict[str, Callable[[], float]] = {
        "pytorchrl": partial(_ours, _atari_scheme, arguments.atari_rollouts, alone),
        "CleanRL's loop": cleanrl,
    }
    rows = in_turn(work, arguments.repetitions)
    rows["pytorchrl, its update alone"] = alone
    rounds = Rounds(
        f"PPO on Breakout in EnvPool, {settings.num_envs} environments, {settings.num_steps} steps",
        "microseconds a step",
        lambda figure: f"{figure:,.0f}",
        rows,
    )
    speed = rounds.ratio("CleanRL's loop", "pytorchrl")
    rounds.goals.append(Goal("at least 1.5 times as fast as CleanRL's loop", f"{speed:.2f}", speed >= 1.5))
    return rounds


def _ours(make: Callable[[], prl.Scheme], rollouts: int, alone: list[float]) -> float:
    """Return microseconds per transition; the part of updates is appended to ``alone``."""
    scheme = make()

    def train() -> float:
        _, due = scheme.collect(2**62)
        started = time.process_time()
        for _ in range(due):
            for _ in scheme.update():
                pass
        return time.process_time() - started

    for _ in range(2):
        train()
    gc.collect()
    steps, started = scheme.steps, time.process_time()
    learnt = sum(train() for _ in range(rollouts))
    taken, steps = time.process_time() - started, scheme.steps - steps
    scheme.close()
    alone.append(learnt / steps * 1e6)
    return taken / steps * 1e6


def _cartpole_scheme() -> prl.Scheme:
    return prl.Scheme(
        algo_factory=prl.PPO.create_factory(
            lr=_LR, num_epochs=_EPOCHS, num_mini_batch=_BATCHES, entropy_coef=_ENTROPY, test_every=0
        ),
        actor_factory=prl.OnPolicyActor.create_factory(hidden_sizes=(64, 64)),
        storage_factory=prl.GAEBuffer.create_factory(size=_STEPS),
        train_envs_factory=prl.VecEnv.create_factory(
            "CartPole-v1", num_envs=_NUM_ENVS, vectorization_mode="vector_entry_point"
        ),
    )


def _atari_scheme() -> prl.Scheme:
    from benchmarks.throughput.peer_cleanrl_envpool import Settings, pool_settings

    settings = Settings()
    return prl.Scheme(
        algo_factory=prl.PPO.create_factory(
            lr=settings.lr,
            num_epochs=settings.epochs,
            num_mini_batch=settings.minibatches,
            clip_param=settings.clip,
            use_clipped_value_loss=True,
            entropy_coef=settings.entropy,
            value_loss_coef=settings.value,
            max_grad_norm=settings.max_grad_norm,
            test_every=0,
        ),
        actor_factory=prl.OnPolicyActor.create_factory(
            feature_extractor="nature_cnn", hidden_sizes=(512,), activation="relu", shared_body=True
        ),
        storage_factory=prl.GAEBuffer.create_factory(size=settings.num_steps),
        train_envs_factory=prl.VecEnv.create_factory(
            "Breakout-v5", num_envs=settings.num_envs, backend="envpool", env_kwargs=pool_settings(settings)
        ),
    )


def _stable_baselines3(rollouts: int) -> float:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    from benchmarks.shared.stable_baselines3 import without_log_folder

    model = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=_NUM_ENVS, seed=0),
        learning_rate=_LR,
        n_steps=_STEPS,
        batch_size=_ROLLOUT // _BATCHES,
        n_epochs=_EPOCHS,
        ent_coef=_ENTROPY,
        device="cpu",
        seed=0,
    )
    without_log_folder(model)
    return _timed(lambda: model.learn(_ROLLOUT, reset_num_timesteps=False), rollouts, _ROLLOUT)


def _rlox(rollouts: int) -> float:
    from rlox.algorithms.ppo import PPO

    model = PPO(
        "CartPole-v1",
        n_envs=_NUM_ENVS,
        seed=0,
        learning_rate=_LR,
        n_steps=_STEPS,
        batch_size=_ROLLOUT // _BATCHES,
        n_epochs=_EPOCHS,
        ent_coef=_ENTROPY,
        anneal_lr=False,
    )
    return _timed(lambda: model.train(_ROLLOUT), rollouts, _ROLLOUT)


def _timed(train: Callable[[], object], rollouts: int, steps: int) -> float:
    """Microseconds of the processor for each environment step, after a rollout that is not timed."""
    train()
    gc.collect()
    started = time.process_time()
    for _ in range(rollouts):
        train()
    return (time.process_time() - started) / (rollouts * steps) * 1e6


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))

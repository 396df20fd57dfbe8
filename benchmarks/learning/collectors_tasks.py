"""Tasks of ``learning_page.py collectors``: the same compositions in one process, and with collectors in others."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytorchrl as prl
from benchmarks.learning.staged_runs import Stage, StagedPage, StagedTask

_ENVIRONMENTS = 4
"""Environments of all collectors of a run together."""

_POLICY_LAG = 8
"""Policy lag of overlapped runs of SAC, in update phases, of which each step of the environments makes one."""

Parts = Callable[[], Mapping[str, Any]]
"""An algorithm, an actor and a storage, as a scheme takes them."""


def _on_policy(algorithm: type[prl.Algorithm], lr: float, storage: Any, **settings: Any) -> Parts:
    return lambda: {
        "algo_factory": algorithm.create_factory(lr=prl.LinearSchedule(lr, 0.0), test_every=0, **settings),
        "actor_factory": prl.OnPolicyActor.create_factory(hidden_sizes=(64, 64)),
        "storage_factory": storage,
    }


_PPO = _on_policy(
    prl.PPO,
    1e-3,
    prl.GAEBuffer.create_factory(size=256, gae_lambda=0.95),
    clip_param=prl.LinearSchedule(0.2, 0.0),
    num_epochs=10,
    num_mini_batch=4,
)
_IMPALA = _on_policy(prl.IMPALA, 3e-3, prl.VTraceBuffer.create_factory(size=5), entropy_coef=0.0)


def _sac() -> Mapping[str, Any]:
    rate = prl.LinearSchedule(1e-3, 0.0)
    return {
        "algo_factory": prl.SAC.create_factory(
            lr_pi=rate,
            lr_q=rate,
            lr_alpha=rate,
            gamma=0.98,
            polyak=0.99,
            start_steps=1_000,
            update_every=_ENVIRONMENTS,
            num_mini_batch=_ENVIRONMENTS,
            mini_batch_size=128,
            test_every=0,
        ),
        "actor_factory": prl.OffPolicyActor.create_factory(hidden_sizes=(128, 128)),
        "storage_factory": prl.ReplayBuffer.create_factory(size=20_000 // _ENVIRONMENTS),
    }


def _stages(
    steps: int,
    env: str,
    synchronous: tuple[str, Parts],
    asynchronous: tuple[str, Parts],
    slice_steps: int,
    overlapped: prl.Overlapped,
) -> tuple[Stage, ...]:
    """Return stages: one process, overlapped, 1, 2 and 4 synchronous collectors, and 2 asynchronous ones."""
    name, parts = synchronous
    stages = [
        Stage(f"{name}, one process", steps, _composed(parts, env, None), "none"),
        Stage(f"{name}, overlapped", steps, _composed(parts, env, None, collection=overlapped), "none"),
    ]
    for count in (1, 2, 4):
        collectors = "1 collector" if count == 1 else f"{count} collectors"
        stages.append(Stage(f"{name}, {collectors}", steps, _composed(parts, env, count), "none"))
    other, other_parts = asynchronous
    freely = {"communication": "asynchronous", "slice_steps": slice_steps}
    if other != name:
        stages.append(Stage(f"{other}, one process", steps, _composed(other_parts, env, None), "none"))
        # A rollout is a slice of each of the collectors, whichever comes first.
        freely["slices_at_once"] = 2
    stages.append(Stage(f"{other}, 2 asynchronous collectors", steps, _composed(other_parts, env, 2, **freely), "none"))
    return tuple(stages)


def _composed(parts: Parts, env: str, collectors: int | None, **settings: Any) -> Callable[[Path, int], prl.Scheme]:
    def compose(folder: Path, seed: int) -> prl.Scheme:
        envs = prl.VecEnv.create_factory(env, num_envs=_ENVIRONMENTS // (collectors or 1))
        if collectors is None:
            return prl.Scheme(**parts(), train_envs_factory=envs, seed=seed, **settings)
        return prl.RayScheme(**parts(), train_envs_factory=envs, num_collectors=collectors, seed=seed, **settings)

    return compose


_QUESTION = (
    "Do collectors in other processes reach what one process does? "
    f"All runs have {_ENVIRONMENTS} environments, divided among the collectors. In overlapped ones, another process "
    "acts while this one learns,"
)

COLLECTORS = StagedPage(
    "collectors",
    "Results with collectors in other processes",
    "collectors_tasks.py",
    {
        "cartpole": StagedTask(
            title="CartPole-v1",
            env="CartPole-v1",
            question=f"{_QUESTION} with weights of one rollout before.",
            stages=_stages(
                100_000, "CartPole-v1", ("PPO", _PPO), ("IMPALA", _IMPALA), slice_steps=5, overlapped=prl.Overlapped(1)
            ),
            random_return=22.2,
            expert_return=475.0,
        ),
        "pendulum": StagedTask(
            title="Pendulum-v1",
            env="Pendulum-v1",
            question=(
                f"{_QUESTION} with weights of {_POLICY_LAG} steps before. `SAC` makes as many updates as there are "
                f"transitions."
            ),
            stages=_stages(
                15_000,
                "Pendulum-v1",
                ("SAC", _sac),
                ("SAC", _sac),
                slice_steps=4,
                overlapped=prl.Overlapped(_POLICY_LAG),
            ),
            random_return=-1_210.0,
            expert_return=-145.5,
        ),
    },
)

"""Compositions for ``learning_page.py million``: the lengths of runs in MuJoCo that papers report."""

from collections.abc import Mapping
from typing import Any

import pytorchrl as prl
from benchmarks.learning.learning_task import Composition, Page, Task
from benchmarks.learning.mujoco_compositions import CROSSQ, SAC, TD3, off_policy
from pytorchrl.agent.algorithms.off_policy import Preset

PPO: dict[str, Any] = {
    "lr": 3e-4,
    "clip": 0.2,
    "epochs": 10,
    "mini_batches": 32,
    "value_coefficient": 0.5,
    "max_grad_norm": 0.5,
    "adam_epsilon": 1e-5,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "rollout_steps": 2_048,
    "hidden_sizes": (64, 64),
    "largest_reward": 10.0,
}
"""Settings of CleanRL's ``ppo_continuous_action.py``; the learning rate falls to 0, and observations and rewards are
normalised."""

_MILLION, _PART = 1_000_000, 300_000
_PUBLISHED: Mapping[str, str] = {
    "HalfCheetah": "1,443 ± 46",
    "Walker2d": "2,288 ± 572",
    "Hopper": "2,383 ± 272",
    "InvertedPendulum": "963 ± 22",
    "Humanoid": "716 ± 49",
    "Pusher": "-40.4 ± 7.2",
}
"""Returns of CleanRL in training, in environments of version 4, with the standard deviation over runs."""
_BESIDE = ("HalfCheetah", "Hopper")
"""Environments in which stable-baselines3 is trained as well."""


def _ppo() -> Composition:
    def compose() -> Preset:
        return Preset(
            algo_factory=prl.PPO.create_factory(
                lr=prl.LinearSchedule(PPO["lr"], 0.0),
                optimizer=prl.Adam(eps=PPO["adam_epsilon"]),
                gamma=PPO["gamma"],
                clip_param=PPO["clip"],
                num_epochs=PPO["epochs"],
                num_mini_batch=PPO["mini_batches"],
                use_clipped_value_loss=True,
                value_loss_coef=PPO["value_coefficient"],
                max_grad_norm=PPO["max_grad_norm"],
                test_every=0,
            ),
            actor_factory=prl.OnPolicyActor.create_factory(
                hidden_sizes=PPO["hidden_sizes"],
                activation="tanh",
                initialisation="orthogonal",
                normalize_observations=True,
            ),
            storage_factory=prl.GAEBuffer.create_factory(size=PPO["rollout_steps"], gae_lambda=PPO["gae_lambda"]),
        )

    clipped = {"min_reward": -PPO["largest_reward"], "max_reward": PPO["largest_reward"]}
    return Composition(compose, wrappers=(("NormalizeReward", {"gamma": PPO["gamma"]}), ("ClipReward", clipped)))


def _on_policy_task(name: str) -> Task:
    beside = name in _BESIDE
    peer = ", as has stable-baselines3 by its `VecNormalize`" if beside else ""
    return Task(
        env=f"{name}-v5",
        target_steps=_MILLION,
        seeds=(1, 2, 3, 4, 5),
        episodes=20,
        summary="interval",
        compositions={"PPO": _ppo()},
        peers={"normalised PPO of stable-baselines3": "stable_baselines3"} if beside else {},
        peer_module="benchmarks.learning.mujoco_peers",
        settings=(
            "PPO has the settings of CleanRL's `ppo_continuous_action.py`, with normalised observations and rewards"
            f"{peer}. CleanRL's published return in training is {_PUBLISHED[name]}, in {name}-v4."
        ),
        package="mujoco",
    )


def _off_policy_task(name: str) -> Task:
    return Task(
        env=f"{name}-v5",
        target_steps=_PART,
        seeds=(1, 2),
        episodes=20,
        summary="interval",
        compositions={
            "SAC": off_policy(prl.SAC, SAC, lr_alpha=SAC["lr"], buffer_size=_PART),
            "TD3": off_policy(prl.TD3, TD3, exploration_noise=TD3["noise"], buffer_size=_PART),
            "CrossQ": off_policy(
                prl.CrossQ,
                CROSSQ,
                lr_alpha=CROSSQ["lr"],
                policy_delay=CROSSQ["policy_delay"],
                buffer_size=_PART,
            ),
        },
        settings="The settings of [mujoco.md](mujoco.md), with a buffer that holds all transitions.",
        package="mujoco",
        about="SAC, TD3 and CrossQ",
    )


MILLION = Page(
    title="MuJoCo at the length of papers",
    target="learning-million",
    compositions="million_compositions.py",
    about=(
        "PPO in six environments, for a million steps, beside the published returns of CleanRL, and in two of them "
        "beside stable-baselines3; SAC, TD3 and CrossQ in two, for 300,000 steps. CleanRL's returns are those of "
        "training episodes at the end of its runs, and are to be compared with the column `in training`."
    ),
    tasks={
        **{name.lower(): _on_policy_task(name) for name in _PUBLISHED},
        **{f"{name.lower()}-off-policy": _off_policy_task(name) for name in ("HalfCheetah", "Walker2d")},
    },
)

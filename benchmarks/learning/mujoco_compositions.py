"""Compositions for ``learning_page.py mujoco``, with the settings that ours share with stable-baselines3's."""

from collections.abc import Mapping
from typing import Any

import pytorchrl as prl
from benchmarks.learning.learning_task import Composition, Page, Task
from pytorchrl.agent.algorithms.off_policy import Preset

OFF_POLICY: dict[str, Any] = {
    "gamma": 0.99,
    "start_steps": 10_000,
    "mini_batch_size": 256,
    "buffer_size": 100_000,
    "tau": 0.005,
}
"""Settings of SAC, TD3 and DDPG: the defaults of stable-baselines3, with the random steps before learning of its zoo.
The buffer holds all transitions."""
SAC: dict[str, Any] = {"lr": 3e-4, "hidden_sizes": (256, 256)}
TD3: dict[str, Any] = {"lr": 1e-3, "hidden_sizes": (400, 300), "noise": 0.1}
"""Further settings of TD3 and DDPG."""
TQC: dict[str, Any] = {"num_critics": 2, "num_quantiles": 25, "num_dropped": 2}
"""Settings of TQC, beside SAC's."""
CROSSQ: dict[str, Any] = {"lr": 1e-3, "hidden_sizes": (256, 256), "policy_delay": 3}
ON_POLICY: dict[str, Any] = {"gamma": 0.99, "gae_lambda": 0.95, "rollout_steps": 2_048, "hidden_sizes": (64, 64)}
PPO: dict[str, Any] = {"lr": 3e-4, "clip": 0.2, "epochs": 10, "mini_batch_size": 64, "max_grad_norm": 0.5}
TRPO: dict[str, Any] = {"lr_value": 1e-3, "max_kl": 0.01, "damping": 0.1, "cg_iterations": 15, "backtracks": 10}
TRPO_VALUE_EPOCHS = 10
TRPO_VALUE_BATCH = 128

_TARGETS = {"polyak": 1 - OFF_POLICY["tau"]}
_SETTINGS = (
    "The settings of ours and of stable-baselines3 are the same: its defaults, with 10,000 random steps before SAC, "
    "TD3 and DDPG learn. sb3-contrib's TRPO bounds the mean of the divergence over an action's components where ours "
    "bounds the divergence, as the paper does: our bound and damping are its times their number. PPO and TRPO "
    "learn from the whole rollouts of 2,048 steps within the budget. Observations and rewards are not "
    "scaled: these are not the [presets](presets.md), of which PPO's scale both, and learn faster. "
    "Our runs of SAC and DDPG in HalfCheetah, and of TD3, DDPG and TQC in Hopper, were made on a slower "
    "machine, and those of CrossQ, PPO and TRPO beside other programs, which lowers steps/s. Given the same weights, "
    "batches and noise, updates of SAC, TD3, DDPG, TQC and CrossQ (with the biased variance of a batch) equal those of "
    "stable-baselines3 and sb3-contrib up to rounding, and so do those of PPO and TRPO, given the actions of their "
    "rollouts; given the transitions, batches and noise of a whole run of ours, stable-baselines3's SAC and TD3 take "
    "its actions (tests hold all of these). PPO and TRPO have more seeds, because they take little time; TD3 in "
    "HalfCheetah, and SAC, TQC and CrossQ in Hopper, because stable-baselines3 was ahead in the first ones. Of these "
    "four, the added ones alone are an unbiased comparison, in which means and standard errors are 5,527 ± 229 and "
    "5,317 ± 185 (TD3, seeds 4 to 10), 404 ± 52 and 468 ± 43 (SAC, from seed 4 on), 512 ± 67 and 418 ± 68 (TQC, seeds "
    "4 to 7, and 4 and 5), 1,589 ± 866 and 615 ± 160 (CrossQ, seeds 3 and 4). Over all seeds, our mean is lower for "
    "nine of twelve pairs of an algorithm and an environment, none significantly (Welch's test: p is 0.16 for SAC in "
    "Hopper, at least 0.23 for each other), nor all together (Stouffer's method: p is 0.43); of PPO in HalfCheetah it "
    "is higher (p is 0.05). We know of no cause but chance: compared were updates, loops, draws, noise and initial "
    "weights, and [many short runs](short-runs.md) show no difference. Means in nnabla-rl's published results after "
    "100,000 steps, with its own settings: "
)


def off_policy(
    algorithm: type[prl.OffPolicyAlgorithm],
    own: Mapping[str, Any],
    *,
    buffer_size: int = OFF_POLICY["buffer_size"],
    **settings: Any,
) -> Composition:
    """Return the composition of an algorithm with one update after every step.

    Args:
        algorithm: class of the algorithm.
        own: its learning rate and the sizes of its layers.
        buffer_size: transitions in the replay buffer.
        settings: further hyper-parameters.
    """

    def compose() -> Preset:
        shared = {
            "lr_pi": own["lr"],
            "lr_q": own["lr"],
            "gamma": OFF_POLICY["gamma"],
            "start_steps": OFF_POLICY["start_steps"],
            "update_every": 1,
            "mini_batch_size": OFF_POLICY["mini_batch_size"],
            "test_every": 0,
        }
        return Preset(
            algo_factory=algorithm.create_factory(**shared | settings),
            actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=own["hidden_sizes"]),
            storage_factory=prl.ReplayBuffer.create_factory(size=buffer_size),
        )

    return Composition(compose)


def _on_policy(algorithm: type[prl.PolicyGradient], **settings: Any) -> Composition:
    """Return the composition of an algorithm that learns from rollouts of one environment."""

    def compose() -> Preset:
        return Preset(
            algo_factory=algorithm.create_factory(gamma=ON_POLICY["gamma"], test_every=0, **settings),
            actor_factory=prl.OnPolicyActor.create_factory(hidden_sizes=ON_POLICY["hidden_sizes"], activation="tanh"),
            storage_factory=prl.GAEBuffer.create_factory(
                size=ON_POLICY["rollout_steps"], gae_lambda=ON_POLICY["gae_lambda"]
            ),
        )

    return Composition(compose)


_COMPOSITIONS: Mapping[str, Composition] = {
    "SAC": off_policy(prl.SAC, SAC, lr_alpha=SAC["lr"], **_TARGETS),
    "TD3": off_policy(prl.TD3, TD3, exploration_noise=TD3["noise"], **_TARGETS),
    "DDPG": off_policy(prl.DDPG, TD3, exploration_noise=TD3["noise"], **_TARGETS),
    "PPO": _on_policy(
        prl.PPO,
        lr=PPO["lr"],
        clip_param=PPO["clip"],
        num_epochs=PPO["epochs"],
        num_mini_batch=ON_POLICY["rollout_steps"] // PPO["mini_batch_size"],
        max_grad_norm=PPO["max_grad_norm"],
        # Half the squared error times 1 is stable-baselines3's squared error times 0.5.
        value_loss_coef=1.0,
    ),
}


def _trpo(action_size: int) -> Composition:
    """Return TRPO with sb3-contrib's trust region, whose divergence is the mean over an action's components."""
    return _on_policy(
        prl.TRPO,
        **TRPO | {"max_kl": action_size * TRPO["max_kl"], "damping": action_size * TRPO["damping"]},
        value_epochs=TRPO_VALUE_EPOCHS,
        value_mini_batches=ON_POLICY["rollout_steps"] // TRPO_VALUE_BATCH,
    )


_PEERS: Mapping[str, str] = {
    **{f"{name} of stable-baselines3": "stable_baselines3" for name in ("SAC", "TD3", "DDPG", "PPO")},
    "TRPO of sb3-contrib": "sb3_contrib",
}
_EFFICIENT: Mapping[str, Composition] = {
    "TQC": off_policy(prl.TQC, SAC, lr_alpha=SAC["lr"], **TQC, **_TARGETS),
    "CrossQ": off_policy(prl.CrossQ, CROSSQ, lr_alpha=CROSSQ["lr"], policy_delay=CROSSQ["policy_delay"]),
}


def _task(env: str, action_size: int, target_steps: int, published: str) -> Task:
    return Task(
        env=env,
        target_steps=target_steps,
        seeds=(1, 2, 3),
        episodes=20,
        summary="interval",
        compositions={**_COMPOSITIONS, "TRPO": _trpo(action_size)},
        peers=_PEERS,
        peer_module="benchmarks.learning.mujoco_peers",
        settings=_SETTINGS + published,
        package="mujoco",
    )


MUJOCO = Page(
    title="Results of policy gradients and actor-critics in MuJoCo",
    target="learning-mujoco",
    compositions="mujoco_compositions.py",
    tasks={
        "halfcheetah": _task("HalfCheetah-v5", 6, 100_000, "SAC 5,233, TD3 5,393, DDPG 5,110, PPO 480, TRPO -644."),
        "hopper": _task("Hopper-v5", 3, 50_000, "SAC 1,944, TD3 427, DDPG 914, PPO 718, TRPO 254."),
        "hopper-efficient": Task(
            env="Hopper-v5",
            target_steps=50_000,
            seeds=(1, 2),
            episodes=20,
            summary="interval",
            compositions=_EFFICIENT,
            peers={f"{name} of sb3-contrib": "sb3_contrib" for name in ("TQC", "CrossQ")},
            peer_module="benchmarks.learning.mujoco_peers",
            settings=(
                "The settings of ours and of sb3-contrib are the same: its defaults, but for CrossQ's critics, which "
                "have two layers of 256 units as its policy, with 10,000 random steps before they learn."
            ),
            package="mujoco",
            about="TQC and CrossQ",
        ),
    },
)

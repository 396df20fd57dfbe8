"""Compositions for ``learning_page.py policies``: the settings that algorithms share, and those of each."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

import pytorchrl as prl
from benchmarks.learning.learning_task import Composition, Page, Task
from pytorchrl.agent.algorithms.off_policy import Preset
from storages.component.factory import Factory, make_factory
from storages.storage import Storage
from storages.transition import OBS

COMPONENTS = ("reward_angle", "reward_speed", "reward_torque")


class PendulumCosts(gym.Wrapper[Any, Any, Any, Any]):
    """Adds the three terms of the reward of a step to its info, under the names in ``COMPONENTS``."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment; the terms depend on the state before the step."""
        env: Any = self.unwrapped
        angle, speed = env.state
        distance = (angle + np.pi) % (2 * np.pi) - np.pi
        observation, reward, terminated, truncated, info = self.env.step(action)
        terms = (-(distance**2), -0.1 * speed**2, -0.001 * float(env.last_u) ** 2)
        return observation, reward, terminated, truncated, info | dict(zip(COMPONENTS, map(float, terms), strict=True))


_WITHOUT_TARGETS: dict[str, Any] = {"gamma": 0.98, "start_steps": 1_000, "update_every": 1, "mini_batch_size": 128}
_FEW_STEPS: dict[str, Any] = {"start_steps": 200, "test_every": 0}
_WITH_TEMPERATURE = ("lr_pi", "lr_q", "lr_alpha")
_SEVERAL_UPDATES: dict[str, Any] = {"num_mini_batch": 4, "policy_delay": 4}


def _falling(lr: float) -> prl.LinearSchedule:
    """Return a learning rate that falls to 0, so that the policy settles."""
    return prl.LinearSchedule(lr, 0.0)


def _cartpole(
    algo_factory: Factory[Any],
    storage_factory: Factory[Storage],
    *,
    num_envs: int = 8,
    threshold: float | None = None,
    **of_actor: Any,
) -> Composition:
    def compose() -> Preset:
        actor_factory = prl.OnPolicyActor.create_factory(**{"hidden_sizes": (64, 64)} | of_actor)
        return Preset(algo_factory=algo_factory, actor_factory=actor_factory, storage_factory=storage_factory)

    return Composition(compose, num_envs, threshold)


def _pendulum(
    algorithm: type[prl.OffPolicyAlgorithm],
    *,
    hidden_sizes: tuple[int, ...] = (128, 128),
    rates: tuple[str, ...] = ("lr_pi", "lr_q"),
    lr: float = 1e-3,
    shared: Mapping[str, Any] = _WITHOUT_TARGETS | {"polyak": 0.99},
    threshold: float | None = None,
    wrappers: tuple[Any, ...] = (),
    **settings: Any,
) -> Composition:
    def compose() -> Preset:
        of_algorithm = {**shared, "test_every": 0} | dict.fromkeys(rates, _falling(lr)) | settings
        return Preset(
            algo_factory=algorithm.create_factory(**of_algorithm),
            actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=hidden_sizes),
            storage_factory=prl.ReplayBuffer.create_factory(size=20_000),
        )

    return Composition(compose, threshold=threshold, wrappers=wrappers)


def _planning(algorithm: type[prl.OffPolicyAlgorithm], **settings: Any) -> Composition:
    """Return a composition for few steps, of networks that take normalised observations."""

    def compose() -> Preset:
        return Preset(
            algo_factory=algorithm.create_factory(**_FEW_STEPS | settings),
            actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=(128, 128), normalize_observations=True),
            storage_factory=prl.ReplayBuffer.create_factory(size=3_000),
        )

    return Composition(compose)


def _segments() -> Factory[Storage]:
    """Return a replay of 50,000 steps of 4 environments, in segments of 20 steps that span episodes."""
    return prl.ReplayBuffer.create_factory(size=12_500, sequences=prl.Sequences(20, across_episodes=True))


def _mountaincar(algorithm: type[prl.PPO], **settings: Any) -> Composition:
    def compose() -> Preset:
        return Preset(
            algo_factory=algorithm.create_factory(lr=1e-3, normalize_advantages=False, test_every=0, **settings),
            actor_factory=prl.OnPolicyActor.create_factory(hidden_sizes=(64, 64), normalize_observations=True),
            storage_factory=prl.GAEBuffer.create_factory(size=128),
        )

    return Composition(compose, num_envs=8)


_CARTPOLE: Mapping[str, Composition] = {
    "A2C": _cartpole(
        prl.A2C.create_factory(lr=_falling(4e-3), normalize_advantages=True, entropy_coef=0.0, test_every=0),
        prl.GAEBuffer.create_factory(size=8, gae_lambda=0.95),
    ),
    "OptionCritic": _cartpole(
        prl.OptionCritic.create_factory(lr=_falling(4e-3), normalize_advantages=True, entropy_coef=0.0, test_every=0),
        prl.GAEBuffer.create_factory(size=8, gae_lambda=0.95),
    ),
    "IMPALA": _cartpole(
        prl.IMPALA.create_factory(lr=_falling(3e-3), entropy_coef=0.0, test_every=0),
        prl.VTraceBuffer.create_factory(size=5),
    ),
    "PPO": _cartpole(
        prl.PPO.create_factory(
            lr=_falling(1e-3), clip_param=_falling(0.2), num_epochs=10, num_mini_batch=4, test_every=0
        ),
        prl.GAEBuffer.create_factory(size=128, gae_lambda=0.95),
    ),
    "TRPO": _cartpole(
        prl.TRPO.create_factory(max_kl=_falling(0.02), test_every=0),
        prl.GAEBuffer.create_factory(size=256, gae_lambda=0.95),
        num_envs=4,
    ),
    "REINFORCE": _cartpole(
        prl.REINFORCE.create_factory(lr=_falling(5e-3), test_every=0),
        prl.VanillaOnPolicyBuffer.create_factory(size=500),
        threshold=400.0,
    ),
    "ACER": _cartpole(prl.ACER.create_factory(test_every=0), _segments(), num_envs=4),
    "PCL": _cartpole(
        prl.PCL.create_factory(tau=0.05, lr=1e-3, max_grad_norm=None, test_every=0),
        _segments(),
        num_envs=4,
        threshold=400.0,
    ),
}
_PENDULUM: Mapping[str, Composition] = {
    "DDPG": _pendulum(prl.DDPG, exploration_noise=0.3, threshold=-250.0),
    "SVG0": _pendulum(prl.SVG0, threshold=-250.0),
    "PGT": _pendulum(prl.PGT, threshold=-250.0),
    "TD3": _pendulum(prl.TD3, exploration_noise=0.3),
    "SAC": _pendulum(prl.SAC, rates=_WITH_TEMPERATURE),
    "SACWithValue": _pendulum(prl.SACWithValue, rates=("lr_pi", "lr_q", "lr_value")),
    "MMESAC": _pendulum(prl.MMESAC, rates=("lr_pi", "lr_q", "lr_value")),
    "DEMMESAC": _pendulum(prl.DEMMESAC, rates=("lr_pi", "lr_q", "lr_value")),
    "TQC": _pendulum(prl.TQC, rates=_WITH_TEMPERATURE, num_critics=2),
    "QRSAC": _pendulum(prl.QRSAC, rates=_WITH_TEMPERATURE),
    "SACDecomposed": _pendulum(
        prl.SACDecomposed, rates=_WITH_TEMPERATURE, wrappers=(PendulumCosts,), reward_components=COMPONENTS
    ),
    "REDQ": _pendulum(prl.REDQ, rates=_WITH_TEMPERATURE, num_critics=5, **_SEVERAL_UPDATES),
    "DroQ": _pendulum(prl.DroQ, rates=_WITH_TEMPERATURE, **_SEVERAL_UPDATES),
    "CrossQ": _pendulum(prl.CrossQ, rates=_WITH_TEMPERATURE, shared=_WITHOUT_TARGETS, policy_delay=1),
    "MPO": _pendulum(
        prl.MPO,
        shared=_WITHOUT_TARGETS,
        wrappers=(("ScaleReward", {"factor": 0.1}),),
        mini_batch_size=64,
        initial_eta=0.3,
        # With the default, a tenth of it, and constant rates, the median of three seeds was -203.
        epsilon_covariance=5e-3,
    ),
}

_SOFT: dict[str, Any] = {"lr_pi": 1e-3, "lr_q": 1e-3, "lr_alpha": 1e-3, "gamma": 0.98, "polyak": 0.99}
_FEW: Mapping[str, Composition] = {
    "PETS": _planning(prl.PETS),
    "PDDM": _planning(prl.PDDM),
    "MBMPC": _planning(prl.MBMPC),
    "MBPO": _planning(prl.MBPO, **_SOFT),
    "SAC": _planning(prl.SAC, **_SOFT),
    "SAC, 10 updates": _planning(prl.SAC, num_mini_batch=10, **_SOFT),
}


def _pixels(
    algorithm: type[prl.DDPG] = prl.DrQV2, extractor: str = "nature_convolutions", shift: int = 2, **settings: Any
) -> Composition:
    """Return an algorithm that learns Pendulum from images, with the settings of the preset of DrQ-v2."""
    shared: dict[str, Any] = {
        "lr_pi": 3e-4,
        "lr_q": 5e-4,
        "gamma": 0.98,
        "polyak": 0.99,
        "mini_batch_size": 64,
        "start_steps": 1_000,
        "update_every": 1,
        "exploration_noise": prl.LinearSchedule(1.0, 0.1, fraction=0.5),
        "test_every": 0,
    }
    transforms = {OBS: prl.RandomShift(shift, interpolate=True)} if shift else None
    return Composition(
        lambda: Preset(
            algo_factory=make_factory(algorithm, (), shared | settings),
            actor_factory=make_factory(
                prl.OffPolicyActor,
                (),
                {"hidden_sizes": (128, 128), "initialisation": "orthogonal", "feature_extractor": extractor},
            ),
            storage_factory=prl.NStepReplayBuffer.create_factory(size=20_000, n_step=3, transforms=transforms),
        )
    )


_PIXELS: Mapping[str, Composition] = {
    "DrQV2": _pixels(),
    "DrQV2, without shifts": _pixels(shift=0),
    "TD3": _pixels(prl.TD3, policy_delay=1, target_noise_clip=0.3),
}

POLICIES = Page(
    title="Results of policy gradients, actor-critics and model-based algorithms",
    target="learning-policies",
    compositions="policies_compositions.py",
    tasks={
        "cartpole": Task(
            env="CartPole-v1",
            target_steps=100_000,
            seeds=(1, 2, 3),
            episodes=20,
            summary="median",
            compositions=_CARTPOLE,
            threshold=475.0,
            settings=(
                "All have two layers of 64 units, and learning rates that fall to 0, but for those of ACER and PCL, "
                "which do not change. The runs of `OptionCritic` shared their processor with other programs."
            ),
        ),
        "mountaincar": Task(
            env="MountainCar-v0",
            target_steps=60_000,
            seeds=(1, 2, 3),
            episodes=20,
            summary="median",
            compositions={"RND": _mountaincar(prl.RND), "PPO": _mountaincar(prl.PPO)},
            threshold=-199.0,
            settings=(
                "The wrapper `TerminalReward` pays for nothing but the goal while they learn; the returns are the "
                "environment's own, -200 where the goal is not reached. Both have the settings of PPO, but that "
                "advantages are not normalised: without a reward that would make noise as large as a reward's, and the "
                "noise takes PPO to the goal in about half of the seeds."
            ),
            wrappers=(("TerminalReward", {}),),
        ),
        "pendulum": Task(
            env="Pendulum-v1",
            target_steps=15_000,
            seeds=(1, 2, 3),
            episodes=20,
            summary="median",
            compositions=_PENDULUM,
            threshold=-160.0,
            settings=(
                "All have two layers of 128 units and learn from 128 transitions after every step, at rates that fall "
                "from 0.001 to 0, with targets that keep 99% and a discount factor of 0.98. `REDQ`, of 5 critics, and "
                "`DroQ` learn from 4 batches after every step, the policy from one; `MPO` learns from 64 transitions, "
                "of rewards times 0.1, with its default targets; the components of `SACDecomposed` are the "
                "three terms of the reward. The runs of `QRSAC`, `SACDecomposed`, `MMESAC` and "
                "`DEMMESAC` shared their processor with other programs; beside each other, updates of `QRSAC` take "
                "about a tenth more time than those of `TQC`, and updates of `SACDecomposed` about a sixth more than "
                "those of `SAC`."
            ),
        ),
        "pixel-pendulum": Task(
            env="pytorchrl/PixelPendulum-v0",
            target_steps=15_000,
            seeds=(1, 2, 3),
            episodes=20,
            summary="median",
            compositions=_PIXELS,
            threshold=-250.0,
            on_request=True,
            settings=(
                "Agents see three images of 40 x 40 grey pixels, and repeat each action for two of an episode's 200 "
                "steps; rewards are multiplied by 0.1 while they learn. All have the convolutions of Nature's network, "
                "two layers of 128 units, returns of three steps and the preset of `DrQV2`: 64 transitions after every "
                "step, at rates of 0.0003 for policies and 0.0005 for critics, a discount factor of 0.98, targets that "
                "keep 99% and noise that falls from 1 to 0.1 in the first half. `TD3` has the same shifts of images, "
                "and an encoder for each network."
            ),
            wrappers=(("ScaleReward", {"factor": 0.1}),),
        ),
        "pendulum-few": Task(
            env="Pendulum-v1",
            about="1,500 steps",
            target_steps=1_500,
            seeds=(1, 2, 3),
            episodes=20,
            summary="median",
            compositions=_FEW,
            threshold=-200.0,
            settings=(
                "All have two layers of 128 units, observations normalised by the actor, 200 random steps at the "
                "beginning, and learn from 256 transitions after every step. `MBPO` and the second `SAC` do so from "
                "10 batches; with `SAC`, they have learning rates of 0.001, a discount factor of 0.98 and targets that "
                "keep 99%. The runs shared their processor with other programs."
            ),
        ),
    },
)

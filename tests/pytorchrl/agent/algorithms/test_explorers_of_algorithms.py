"""Algorithms use the explorer that the user chooses, and refuse explorers that cannot use their output."""

from typing import Any

import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.explorers import (
    Boltzmann,
    EpsilonGreedy,
    Explorer,
    GaussianNoise,
    Greedy,
    OrnsteinUhlenbeck,
    Sample,
    UniformUntil,
)
from storages.transition import ACT, DONE, OBS, RHS, RHS2
from tests.support.by_hand import envs_with, exploring
from tests.support.comparison import assert_equal
from tests.support.hybrid import PARTS, joined
from tests.support.toys import Noise, continuous
from tests.support.training import saved_and_loaded, train

DISCRETE, BOX = spaces.Discrete(3), continuous(-2.0, 2.0, 2)


class ContinuousNoise(Noise):
    action_space = BOX  # type: ignore[assignment]


class HybridNoise(Noise):
    action_space = PARTS  # type: ignore[assignment]


ENVS: dict[str, Any] = {"discrete": Noise, "hybrid": HybridNoise}
SPACES: dict[str, Any] = {"discrete": DISCRETE, "hybrid": joined()}


def made(cls: Any, memory: Any = None, **hyper_parameters: Any) -> Any:
    envs = envs_with(SPACES.get(cls.actions, BOX))
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(4,), memory=memory)("cpu", envs)
    return cls.create_factory(**hyper_parameters)("cpu", actor, envs)


def scheme_of(cls: Any, memory: Any = None, actor: Any = None, **hyper_parameters: Any) -> prl.Scheme:
    settings = {"start_steps": 30, "mini_batch_size": 8, "update_every": 6, "test_every": 0} | hyper_parameters
    return prl.Scheme(
        cls.create_factory(**settings),
        prl.OffPolicyActor.create_factory(hidden_sizes=(4,), memory=memory, memory_size=4, **(actor or {})),
        prl.ReplayBuffer.create_factory(size=100, sequences=prl.Sequences(4) if memory else None),
        prl.VecEnv.create_factory(
            ENVS.get(cls.actions, ContinuousNoise),
            num_envs=3,
            wrappers=["JoinActions"] if cls.actions == "hybrid" else [],
        ),
    )


VALUES = "needs action values, the network gives"
MISFITS: list[tuple[Any, Explorer, str]] = [
    (prl.DQN, Sample(), "DQN: Sample needs a distribution, the network gives ScalarValues; explore with EpsilonGreedy"),
    (prl.DQN, GaussianNoise(0.1), "DQN: GaussianNoise needs continuous actions"),
    (prl.SAC, EpsilonGreedy(0.1), f"SAC: EpsilonGreedy {VALUES} SquashedGaussian; explore with Sample"),
    (prl.TD3, EpsilonGreedy(0.1), f"TD3: EpsilonGreedy {VALUES} a tensor of torch.float32; explore with GaussianNoise"),
    (prl.HyAR, EpsilonGreedy(0.1), f"HyAR: EpsilonGreedy {VALUES} a tensor of torch.float32; explore with Gaussian"),
    (prl.IQL, EpsilonGreedy(0.1), f"IQL: EpsilonGreedy {VALUES} DiagonalGaussian; explore with Sample"),
    (prl.QtOpt, Sample(), "QtOpt: Sample needs a distribution, the network gives SearchedValues; explore with Eps"),
    (prl.DDPG, Sample(), "DDPG: Sample needs a distribution"),
    (prl.SACDiscrete, Boltzmann(1.0), "SACDiscrete: Boltzmann needs values"),
]


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize(("memory", "until"), [(None, 0), ("gru", 10_000)])
@pytest.mark.parametrize(("cls", "explorer", "message"), MISFITS)
def test_an_explorer_that_cannot_use_the_output_is_refused_at_once(
    cls: Any, explorer: Explorer, message: str, until: int, memory: Any
) -> None:
    with pytest.raises(TypeError, match=message):
        made(cls, memory, explorer=UniformUntil(until, explorer) if until else explorer)


def test_an_explorer_can_be_replaced_by_a_compatible_one() -> None:
    algorithm = made(prl.DQN, start_steps=0, explorer=Greedy())
    obs, done = torch.randn(1, 3).expand(60, 3), torch.zeros(60, 1)
    assert len(algorithm.acting_step(obs, None, done, exploring(algorithm, 60)).action.unique()) == 1
    with pytest.raises(TypeError, match="DQN: Sample needs a distribution"):
        algorithm.update_algorithm_parameter("explorer", Sample())
    assert algorithm.explorer == Greedy()
    assert len(algorithm.acting_step(obs, None, done, exploring(algorithm, 60)).action.unique()) == 1
    algorithm.update_algorithm_parameter("explorer", EpsilonGreedy(1.0))
    assert len(algorithm.acting_step(obs, None, done, exploring(algorithm, 60)).action.unique()) == 3


FITS: list[tuple[Any, Explorer]] = [
    (prl.DQN, Boltzmann(prl.LinearSchedule(1.0, 0.1))),
    (prl.DQN, EpsilonGreedy(0.3)),
    (prl.QRDQN, Boltzmann(0.5)),
    (prl.IQN, Boltzmann(0.5)),
    (prl.IQN, Greedy()),
    (prl.SAC, GaussianNoise(0.2, clip=0.3)),
    (prl.SAC, Greedy()),
    (prl.TD3, OrnsteinUhlenbeck(0.3)),
    (prl.HyAR, UniformUntil(45, OrnsteinUhlenbeck(0.3))),
    (prl.NAF, OrnsteinUhlenbeck(0.3)),
    (prl.QtOpt, OrnsteinUhlenbeck(0.3)),
    (prl.TD3, UniformUntil(45, OrnsteinUhlenbeck(prl.LinearSchedule(0.5, 0.1)))),
]


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("memory", [None, "lstm"])
@pytest.mark.parametrize(("cls", "explorer"), FITS)
def test_a_resumed_run_explores_like_an_uninterrupted_run(cls: Any, explorer: Explorer, memory: Any) -> None:
    whole, first, second = (scheme_of(cls, memory, explorer=explorer) for _ in range(3))
    train(whole, 90)
    first.set_progress(0, 90)
    while first.steps < 60:
        _, due = first.collect(60)
        for _ in range(due):
            list(first.update())
        first.set_progress(first.steps, 90)
    second.load_state_dict(saved_and_loaded(first.state_dict()))
    train(second, 90)
    assert_equal(second.state_dict(), whole.state_dict())


def test_a_schedule_of_an_explorer_reduces_its_noise() -> None:
    algorithm = made(prl.TD3, start_steps=0, explorer=GaussianNoise(prl.LinearSchedule(0.1, 0.0)))
    obs, done = torch.randn(1, 3).expand(2_000, 3), torch.zeros(2_000, 1)
    exploration = exploring(algorithm, 2_000)
    exploration.target_steps = 100
    deviations = []
    for steps in (0, 50, 100):
        exploration.steps = steps
        deviations.append(algorithm.acting_step(obs, None, done, exploration).action.std(0).mean().item())
    # Actions of the Box are twice as large as those of the network.
    assert deviations == pytest.approx([0.2, 0.1, 0.0], abs=0.01)


@pytest.mark.parametrize(("target", "is_greedy"), [(10, True), (1_000_000, False)])
def test_schedules_of_an_explorer_use_the_progress_of_the_run(target: int, is_greedy: bool) -> None:
    scheme = scheme_of(prl.DQN, start_steps=0, explorer=EpsilonGreedy(prl.LinearSchedule(1.0, 0.0)))
    scheme.set_progress(0, target)
    while scheme.steps < 60:
        scheme.collect(60)
    obs, action = (scheme.storage.get_all_buffer_data()[key][4:].flatten(0, 1) for key in (OBS, ACT))
    greedy = scheme.algorithm.q(scheme.actor.view(obs)).greedy()  # type: ignore[attr-defined]
    assert bool((greedy == action).all()) is is_greedy


@pytest.mark.parametrize("cls", [prl.DQN, prl.SAC, prl.TD3, prl.HyAR])
def test_recurrent_states_are_updated_while_actions_are_random(cls: Any) -> None:
    scheme = scheme_of(cls, "gru", start_steps=1_000)
    scheme.collect(60)
    stored = scheme.storage.get_all_buffer_data()
    begins = stored[DONE][..., 0] == 1
    assert begins.any()
    assert (stored[RHS2].abs().sum(-1) > 0).all()
    assert (stored[RHS][~begins].abs().sum(-1) > 0).all()


@pytest.mark.parametrize("cls", [prl.DQN, prl.SAC, prl.TD3, prl.HyAR])
def test_evaluation_does_not_explore(cls: Any) -> None:
    algorithm = made(cls, start_steps=1_000, explorer=None)
    obs, done = torch.randn(1, 3).expand(60, 3), torch.zeros(60, 1)
    step = algorithm.acting_step(obs, None, done, exploring(algorithm, 60, deterministic=True))
    assert len(step.action.unique(dim=0)) == 1


def test_noisy_networks_explore_with_a_greedy_explorer() -> None:
    scheme = scheme_of(prl.DQN, actor={"noisy": True}, explorer=Greedy(), start_steps=0)
    scheme.collect(60)
    assert len(scheme.storage.get_all_buffer_data()[ACT].unique()) == 2
    evaluated = [scheme.evaluate(2) for _ in range(2)]
    assert evaluated[0] == evaluated[1]


def test_making_an_algorithm_draws_no_samples_from_the_observation_space() -> None:
    envs = envs_with(DISCRETE)
    envs.observation_space.seed(3)
    expected = envs_with(DISCRETE)
    expected.observation_space.seed(3)
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(4,))("cpu", envs)
    prl.DQN.create_factory()("cpu", actor, envs)
    assert (envs.observation_space.sample() == expected.observation_space.sample()).all()


class First(Explorer):
    """Takes the first action."""

    def act(self, output: Any, exploration: prl.Exploration) -> Any:
        """Return zeros."""
        return 0 * exploration.uniform_actions()


@pytest.mark.parametrize("cls", [prl.DQN, prl.SAC, prl.TD3], ids=lambda cls: cls.__name__)
def test_the_actions_before_the_first_update_are_those_of_the_burn_in_explorer(cls: Any) -> None:
    with scheme_of(cls, burn_in_explorer=First()) as scheme:
        scheme.collect(60)
        actions = scheme.storage.get_all_buffer_data()[ACT]
        before, after = actions[:10], actions[10:]
        # Of a Box, the middle is 0 for networks.
        assert (before == before[0, 0]).all()
        assert len(after) == 0 or not (after == before[0, 0]).all()


def test_a_burn_in_explorer_that_does_not_fit_is_refused() -> None:
    with pytest.raises(TypeError, match="SAC: EpsilonGreedy needs action values"):
        made(prl.SAC, burn_in_explorer=EpsilonGreedy(0.1))

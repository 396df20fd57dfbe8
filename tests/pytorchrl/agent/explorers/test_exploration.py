"""The state of explorers is seeded, saved and restored, and explorers are described by plain data."""

import pickle
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pytorchrl as prl
from pytorchrl.agent.actors.outputs import Categorical, SquashedGaussian
from tests.support.comparison import assert_equal
from tests.support.exploring import Bounded, Countable, Peaks, Values, acted, exploration_of
from tests.support.profiles import examples

VALUES = torch.tensor([[0.0, 0.2, 0.1], [0.3, 0.5, 0.0], [0.0, 0.1, 0.0]])
ACTIONS = torch.tensor([[0.5, -0.9], [0.0, 0.3], [-0.2, 0.2]])
DECREASING = prl.LinearSchedule(0.5, 0.1)
PAIRS: list[tuple[Any, Any, Any]] = [
    (prl.EpsilonGreedy(DECREASING), Values(VALUES), Countable(3)),
    (prl.EpsilonGreedy(0.3), Peaks(ACTIONS), Bounded(2)),
    (prl.ApeXEpsilonGreedy(DECREASING, alpha=1.0), Values(VALUES), Countable(3)),
    (prl.Boltzmann(DECREASING), Values(VALUES), Countable(3)),
    (prl.Sample(), Categorical(VALUES), Countable(3)),
    (prl.Sample(), SquashedGaussian(ACTIONS, ACTIONS), Bounded(2)),
    (prl.GaussianNoise(DECREASING, clip=0.4), ACTIONS, Bounded(2)),
    (prl.OrnsteinUhlenbeck(DECREASING, dt=0.5), ACTIONS, Bounded(2)),
    (prl.UniformUntil(30, then=prl.OrnsteinUhlenbeck(0.2)), ACTIONS, Bounded(2)),
]


@pytest.mark.parametrize(("explorer", "output", "codec"), PAIRS)
def test_equal_seeds_give_equal_actions_and_other_seeds_other_actions(explorer: Any, output: Any, codec: Any) -> None:
    one, same, other = (
        acted(explorer, output, exploration_of(codec, 3, seed=np.random.SeedSequence(seed)), times=20)
        for seed in (1, 1, 2)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(("explorer", "output", "codec"), PAIRS)
def test_explorers_draw_no_numbers_from_global_generators(explorer: Any, output: Any, codec: Any) -> None:
    def global_states() -> Any:
        state = np.random.get_state(legacy=False)["state"]  # noqa: NPY002 - shows that it is not used
        return torch.get_rng_state(), state["pos"], state["key"].tolist(), random.getstate()

    before = global_states()
    acted(explorer, output, exploration_of(codec, 3), times=20)
    assert_equal(global_states(), before)


@pytest.mark.parametrize(("explorer", "output", "codec"), PAIRS)
@settings(max_examples=examples(20), deadline=None)
@given(steps=st.integers(0, 25), seed=st.integers(0, 100))
def test_a_restored_exploration_continues_with_the_same_actions(
    explorer: Any, output: Any, codec: Any, steps: int, seed: int
) -> None:
    one, other = exploration_of(codec, 3, seed), exploration_of(codec, 3, seed + 1)
    with torch.inference_mode():
        acted(explorer, output, one, times=steps) if steps else None
    state = one.state_dict()
    saved = pickle.dumps(state)
    expected = acted(explorer, output, one, times=10)
    assert pickle.dumps(state) == saved, "acting changed the saved state"
    other.load_state_dict(pickle.loads(saved))
    other.steps, other.target_steps = 3 * steps, one.target_steps
    assert torch.equal(acted(explorer, output, other, times=10), expected)
    assert_equal(other.state_dict(), one.state_dict())


def test_a_saved_state_is_loadable_with_weights_only(tmp_path: Any) -> None:
    exploration = exploration_of(Bounded(2), 3)
    with torch.inference_mode():
        acted(prl.OrnsteinUhlenbeck(0.2), ACTIONS, exploration, times=3)
    torch.save(exploration.state_dict(), tmp_path / "state")
    other = exploration_of(Bounded(2), 3, seed=1)
    other.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    assert_equal(other.state_dict(), exploration.state_dict())


def test_in_place_changes_by_an_explorer_do_not_alter_a_saved_state() -> None:
    exploration = exploration_of(Bounded(2), 3)
    exploration.state["count"] = torch.zeros(3, 1)
    state = exploration.state_dict()
    exploration.state["count"] += 1
    exploration.load_state_dict(state)
    exploration.state["count"] += 1
    assert state["state"]["count"].sum() == 0


def test_seeding_restarts_the_random_numbers() -> None:
    exploration = exploration_of(Bounded(2), 3, seed=5)
    first = acted(prl.GaussianNoise(0.2), ACTIONS, exploration), exploration.uniform_actions()
    exploration.seed(5)
    again = acted(prl.GaussianNoise(0.2), ACTIONS, exploration), exploration.uniform_actions()
    assert_equal(again, first)


def test_a_state_of_another_number_of_environments_is_refused() -> None:
    exploration = exploration_of(Bounded(2), 3)
    acted(prl.OrnsteinUhlenbeck(0.2), ACTIONS, exploration)
    with pytest.raises(ValueError, match="the saved state 'OrnsteinUhlenbeck' is of 3 environments, there are 2"):
        exploration_of(Bounded(2), 2).load_state_dict(exploration.state_dict())


def test_a_generator_state_of_another_device_is_ignored() -> None:
    exploration = exploration_of(Bounded(2), 3)
    before = exploration.generator.get_state()
    state = exploration.state_dict() | {"generator": torch.zeros(16, dtype=torch.uint8)}
    exploration.load_state_dict(state)
    assert torch.equal(exploration.generator.get_state(), before)


def test_schedules_are_evaluated_at_the_progress_of_the_run() -> None:
    exploration = exploration_of(Bounded(2), 3)
    exploration.steps, exploration.target_steps = 50, 100
    assert exploration.at(prl.LinearSchedule(1.0, 0.0)) == 0.5
    assert exploration.at(0.3) == 0.3


@pytest.mark.parametrize(
    "explorer",
    [prl.EpsilonGreedy(DECREASING), prl.GaussianNoise(DECREASING), prl.OrnsteinUhlenbeck(0.1), prl.Boltzmann(1.0)],
)
def test_explorers_run_on_the_meta_device(explorer: Any) -> None:
    exploration = prl.Exploration(Bounded(2), 3, "meta", 0)
    exploration.starts = torch.ones(3, 1, device="meta")
    output = Values(VALUES.to("meta")) if isinstance(explorer, prl.Boltzmann) else ACTIONS.to("meta")
    if isinstance(explorer, prl.EpsilonGreedy):
        output = Peaks(ACTIONS.to("meta"))
    assert acted(explorer, output, exploration, times=3).device.type == "meta"


EXPLORERS = [prl.Greedy(), *(explorer for explorer, _, _ in PAIRS)]


@pytest.mark.parametrize("explorer", EXPLORERS, ids=lambda explorer: type(explorer).__name__)
def test_an_explorer_compares_by_value_and_is_described_by_plain_data(explorer: Any) -> None:
    config = explorer.config
    assert config["name"] == type(explorer).__name__
    if config["name"] == "UniformUntil":
        assert config["hyper_parameters"]["then"]["name"] == "OrnsteinUhlenbeck"
    same = pickle.loads(pickle.dumps(explorer))
    assert same == explorer
    assert hash(same) == hash(explorer)
    assert sum(explorer == other for other in {*EXPLORERS}) == 1


def test_a_users_explorer_needs_only_the_method_act() -> None:
    class Opposite(prl.Explorer):
        """Takes the opposite of the network's action, twice as large."""

        def act(self, output: Any, exploration: prl.Exploration) -> torch.Tensor:
            return exploration.clip(-2 * output())

    opposite = Opposite()
    opposite.check_output(ACTIONS)
    assert opposite == Opposite()
    assert opposite.config == {"name": "Opposite", "hyper_parameters": {}}
    torch.testing.assert_close(
        acted(prl.UniformUntil(0, then=opposite), ACTIONS, exploration_of(Bounded(2), 3))[0],
        (-2 * ACTIONS).clamp(-1, 1),
    )

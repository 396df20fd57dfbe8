"""Hindsight: every relabelled row equals the row of an episode that has its new goal from the start."""

import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from storages import HERBuffer, SampleError
from storages.transition import (
    ACT,
    DISCOUNT,
    DONE,
    DONE2,
    ERRORS,
    INDICES,
    OBS,
    OBS2,
    REW,
    TRUNC2,
)
from tests.support.model import ALGORITHM, GAMMA, contents, through_a_file

# Their rewards are random numbers, not those of a reward function.
pytestmark = pytest.mark.filterwarnings("ignore:.*but compute_reward gives:UserWarning")


STRATEGIES = ("future", "final", "episode", "random")


def compute_reward(achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
    """Gives a different number for each pair of goals, so that a wrong pair is detected."""
    return (achieved_goal[..., 0] - 2 * desired_goal[..., 0]).astype(np.float64)


def envs(num_envs: int) -> Any:
    return SimpleNamespace(num_envs=num_envs, compute_reward=compute_reward)


@dataclass
class GoalStream:
    """Episodes of random lengths with one desired goal each; every achieved goal is unique."""

    num_envs: int
    generator: np.random.Generator
    obs: Any = None
    first: Any = None
    count: int = 0
    ends: float = 0.1

    def _observe(self) -> Any:
        numbers = self.count + np.arange(self.num_envs, dtype=np.float32)
        self.count += self.num_envs
        goals = self.generator.normal(size=(self.num_envs, 1)).astype(np.float32)
        return {
            "observation": np.stack([numbers, -numbers], 1),
            "achieved_goal": numbers[:, None],
            "desired_goal": goals,
        }

    def step(self) -> Any:
        draw, num_envs = self.generator, self.num_envs
        if self.obs is None:
            self.obs, self.first = self._observe(), np.ones((num_envs, 1), bool)
        obs, first = self.obs, self.first
        following = self._observe()
        following["desired_goal"] = obs["desired_goal"].copy()
        terminated, truncated = (draw.random((num_envs, 1)) < self.ends for _ in range(2))
        ended = terminated | truncated
        new = self._observe()
        self.obs = {name: np.where(ended, new[name], leaf) for name, leaf in following.items()}
        self.first = ended
        return {
            OBS: obs,
            DONE: first,
            ACT: draw.integers(0, 3, (num_envs, 1)),
            REW: compute_reward(following["achieved_goal"], obs["desired_goal"], {})[:, None].astype(np.float32),
            OBS2: following,
            DONE2: terminated,
            TRUNC2: truncated,
        }


def made(num_envs: int, size: int = 15, seed: int = 0, **hyper_parameters: Any) -> HERBuffer:
    storage = HERBuffer.create_factory(size=size, **hyper_parameters)("cpu", None, ALGORITHM, envs(num_envs))
    storage.seed(seed)
    return storage


class History:
    """The steps that are still stored, and the episodes that they belong to."""

    def __init__(self, size: int) -> None:
        self.size, self.steps, self.inserted = size, {}, 0
        self.breaks: set[int] = set()

    def insert(self, sample: Any) -> None:
        self.steps[self.inserted] = sample
        self.inserted += 1
        self.steps.pop(self.inserted - 1 - self.size, None)

    def goes_on(self, step: int, env: int) -> bool:
        sample = self.steps[step]
        ended = sample[DONE2][env, 0] or sample[TRUNC2][env, 0] or step in self.breaks
        return step + 1 in self.steps and not ended

    def episode(self, step: int, env: int) -> list[int]:
        steps = [step]
        while steps[0] - 1 in self.steps and self.goes_on(steps[0] - 1, env):
            steps.insert(0, steps[0] - 1)
        while self.goes_on(steps[-1], env):
            steps.append(steps[-1] + 1)
        return steps

    def window(self, step: int, env: int, n_step: int) -> list[int]:
        episode = self.episode(step, env)
        return episode[episode.index(step) :][:n_step]

    def possible_goals(self, strategy: str, step: int, env: int) -> list[tuple[int, int]]:
        if strategy == "random":
            return [(s, e) for s in self.steps for e in range(len(self.steps[s][REW]))]
        episode = self.episode(step, env)
        return [
            (s, env)
            for s in {"future": episode[episode.index(step) :], "final": episode[-1:], "episode": episode}[strategy]
        ]


def assert_rows(history: History, batch: Any, num_envs: int, n_step: int, strategy: str) -> int:
    """Checks every row and returns the number of relabelled rows."""
    relabelled = 0
    for row, number in enumerate(batch[INDICES][:, 0].tolist()):
        step, env = divmod(number, num_envs)
        window = history.window(step, env, n_step)
        first, last = history.steps[window[0]], history.steps[window[-1]]
        goal = batch[OBS]["desired_goal"][row].numpy()
        if goal != first[OBS]["desired_goal"][env]:
            relabelled += 1
            allowed = [
                history.steps[s][OBS2]["achieved_goal"][e] for s, e in history.possible_goals(strategy, step, env)
            ]
            assert goal in allowed
        assert batch[OBS2]["desired_goal"][row].numpy() == goal
        paid = [compute_reward(history.steps[s][OBS2]["achieved_goal"][env], goal, {}) for s in window]
        expected = sum(GAMMA**i * reward for i, reward in enumerate(paid))
        assert batch[REW][row, 0].item() == pytest.approx(expected, rel=1e-5, abs=1e-5)
        for name in ("observation", "achieved_goal"):
            np.testing.assert_array_equal(batch[OBS][name][row], first[OBS][name][env])
            np.testing.assert_array_equal(batch[OBS2][name][row], last[OBS2][name][env])
        assert batch[ACT][row].item() == first[ACT][env]
        assert batch[DONE2][row].item() == last[DONE2][env]
        discount = 0 if last[DONE2][env] else GAMMA ** len(window)
        assert batch[DISCOUNT][row].item() == pytest.approx(discount)
    return relabelled


WAYS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "priority": {"alpha": 0.7, "beta": 0.5, "epsilon": 0.01, "default_error": 1.0},
    "recency": {"eta": 0.999, "cmin": 6},
    "priority and recency": {"alpha": 0.7, "epsilon": 0.01, "default_error": 1.0, "eta": 0.999, "cmin": 6},
}


@pytest.mark.quick_share(0.25)
@pytest.mark.parametrize(
    ("way", "strategy", "n_step", "num_envs"),
    [
        (way, STRATEGIES[(row + column) % len(STRATEGIES)], 1 if column % 2 else 3, 4 if (row + column) % 3 else 1)
        for row, way in enumerate(WAYS)
        for column in range(4)
    ],
)
def test_hindsight_works_with_every_sampler_and_with_n_step_windows(
    way: str, strategy: Any, n_step: int, num_envs: int
) -> None:
    hyper_parameters = {"strategy": strategy, "n_step": n_step, **WAYS[way]}
    storage, history = made(num_envs, **hyper_parameters), History(15)
    random = np.random.default_rng(1)
    stream = GoalStream(num_envs, random)
    relabelled = drawn = 0
    for step in range(70):
        sample = stream.step()
        storage.insert_transition(sample)
        history.insert(sample)
        if step == 30:
            storage.end_episode()
            history.breaks.add(step)
        if step == 45:
            state = through_a_file(storage.state_dict())
            storage = made(num_envs, seed=5, **hyper_parameters)
            storage.load_state_dict(state)
        if step % 4:
            continue
        before = contents(storage)
        for batch in storage.generate_batches(2, 16):
            relabelled += assert_rows(history, batch, num_envs, n_step, strategy)
            drawn += 16
            storage.after_gradients(batch, {ERRORS: torch.from_numpy(random.exponential(size=(16, 1)))})
        assert contents(storage) == before
    assert relabelled / drawn == pytest.approx(0.8, abs=0.07)


def test_an_end_of_episode_applies_to_transitions_of_incomplete_steps() -> None:
    storage, stream = made(2, size=20), GoalStream(2, np.random.default_rng(3), ends=0.0)
    steps = [stream.step() for _ in range(5)]
    for step in steps[:2]:
        storage.insert_transition(step)
    storage.insert_transition(_of_environment(0, steps[2]), [0])
    storage.end_episode()
    storage.insert_transition(_of_environment(0, steps[3]), [0])
    storage.insert_transition(_of_environment(1, steps[2]), [1])
    storage.insert_transition(_of_environment(1, steps[3]), [1])
    storage.insert_transition(steps[4], [0, 1])
    assert storage.get_all_buffer_data()[TRUNC2][:, 0, 0].tolist() == [0, 0, 1, 0, 0]
    assert storage.get_all_buffer_data()[TRUNC2][:, 1, 0].tolist() == [0, 1, 0, 0, 0]
    # The interruption came after three transitions of environment 0, and after two of environment 1.
    interrupted_after = (3, 2)
    place = {step[OBS]["observation"][env, 0]: (number, env) for number, step in enumerate(steps) for env in (0, 1)}
    reached = {step[OBS2]["achieved_goal"][env, 0]: number for number, step in enumerate(steps) for env in (0, 1)}
    relabelled = 0
    for batch in storage.generate_batches(4, 64):
        for row in range(64):
            step, env = place[batch[OBS]["observation"][row, 0].item()]
            goal = batch[OBS]["desired_goal"][row, 0].item()
            if goal in reached:
                relabelled += 1
                assert (step < interrupted_after[env]) == (reached[goal] < interrupted_after[env])
    assert relabelled > 128


def _of_environment(env: int, step: Any) -> Any:
    return {
        name: _of_environment(env, value) if isinstance(value, dict) else value[[env]] for name, value in step.items()
    }


@pytest.mark.parametrize("strategy", ["future", "episode"])
def test_all_possible_goals_are_equally_likely(strategy: Any) -> None:
    storage = made(1, size=100, strategy=strategy, her_ratio=1.0)
    stream = GoalStream(1, np.random.default_rng(0), ends=0.0)
    for _ in range(10):
        storage.insert_transition(stream.step())
    goals: dict[int, list[float]] = {number: [] for number in range(10)}
    for batch in storage.generate_batches(40, 1_000):
        for number, goal in zip(batch[INDICES][:, 0].tolist(), batch[OBS]["desired_goal"][:, 0].tolist(), strict=True):
            goals[number].append(goal)
    for number, found in goals.items():
        counts = np.unique(found, return_counts=True)[1]
        assert len(counts) == (10 - number if strategy == "future" else 10)
        expected = len(found) / len(counts)
        assert ((counts - expected) ** 2 / expected).sum() < 28  # 0.999 quantile of 9 degrees of freedom


def test_her_ratio_zero_relabels_no_row_and_one_relabels_every_row() -> None:
    for ratio in (0.0, 1.0):
        storage, history = made(2, her_ratio=ratio), History(15)
        stream = GoalStream(2, np.random.default_rng(0))
        for _ in range(40):
            sample = stream.step()
            storage.insert_transition(sample)
            history.insert(sample)
        (batch,) = storage.generate_batches(1, 64)
        assert assert_rows(history, batch, 2, 1, "future") == 64 * ratio


@pytest.mark.parametrize("n_step", [1, 3])
def test_a_her_function_is_called_once_for_each_batch_and_sets_the_goals(n_step: int) -> None:
    calls = []

    def her_function(obs: Any, rhs: Any, obs2: Any, rhs2: Any, rew: Any, initial: Any, final: Any) -> Any:
        calls.append(len(rew))
        assert rhs is None
        assert rhs2 is None
        goal = final["achieved_goal"]
        assert (initial["achieved_goal"] <= obs["achieved_goal"]).all()
        assert (goal >= initial["achieved_goal"]).all()
        rewards = compute_reward(obs2["achieved_goal"], goal, {})[:, None]
        return obs | {"desired_goal": goal}, None, obs2 | {"desired_goal": goal}, None, rewards

    storage = HERBuffer.create_factory(size=15, her_function=her_function, n_step=n_step)("cpu", None, ALGORITHM, None)
    storage.seed(0)
    history, stream = History(15), GoalStream(3, np.random.default_rng(0))
    for _ in range(40):
        sample = stream.step()
        storage.insert_transition(sample)
        history.insert(sample)
    relabelled = sum(assert_rows(history, batch, 3, n_step, "future") for batch in storage.generate_batches(5, 64))
    assert relabelled / 320 == pytest.approx(0.8, abs=0.07)
    assert len(calls) == 5


def test_environments_without_compute_reward_are_refused_when_the_storage_is_made() -> None:
    with pytest.raises(ValueError, match="HERBuffer: the environments have no compute_reward"):
        HERBuffer.create_factory(size=5)("cpu", None, ALGORITHM, SimpleNamespace(num_envs=1))


def test_observations_without_goals_are_refused_and_do_not_fix_the_fields() -> None:
    storage, stream = made(1), GoalStream(1, np.random.default_rng(0))
    good = stream.step()
    plain = {key: good[key]["observation"] for key in (OBS, OBS2)}
    message = "dicts with 'achieved_goal' and 'desired_goal' of one shape, got"
    with pytest.raises(SampleError, match=f"{message} no dict"):
        storage.insert_transition(good | plain)
    with pytest.raises(SampleError, match=rf"{message} \['observation'\]"):
        storage.insert_transition(good | {key: {"observation": leaf} for key, leaf in plain.items()})
    storage.insert_transition(good)
    assert len(storage) == 1


def test_a_compute_reward_of_a_single_goal_is_refused_at_the_first_step() -> None:
    alone = SimpleNamespace(num_envs=1, compute_reward=lambda achieved_goal, desired_goal, info: -1.0)
    storage = HERBuffer.create_factory(size=5)("cpu", None, ALGORITHM, alone)
    with pytest.raises(ValueError, match="compute_reward must return a reward for each of 2 pairs of goals"):
        storage.insert_transition(GoalStream(1, np.random.default_rng(0)).step())
    unused = HERBuffer.create_factory(size=5, her_ratio=0.0)("cpu", None, ALGORITHM, alone)
    unused.insert_transition(GoalStream(1, np.random.default_rng(0)).step())
    unused.update_storage_parameter("her_ratio", 1.0)
    with pytest.raises(ValueError, match="compute_reward must return a reward for each of 8 pairs of goals"):
        list(unused.generate_batches(1, 8))


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.bool_, np.float32])
@pytest.mark.parametrize("n_step", [1, 2])
def test_relabelled_rewards_are_not_truncated_to_integers(n_step: int, dtype: Any) -> None:
    fraction = SimpleNamespace(num_envs=2, compute_reward=lambda achieved, desired, info: np.full(len(achieved), 0.5))
    storage = HERBuffer.create_factory(size=20, n_step=n_step, her_ratio=1.0)("cpu", None, ALGORITHM, fraction)
    stream = GoalStream(2, np.random.default_rng(0), ends=0.0)
    for _ in range(10):
        storage.insert_transition(stream.step() | {REW: np.ones((2, 1), dtype)})
    (batch,) = storage.generate_batches(1, 64)
    assert batch[REW].dtype == torch.float32
    assert set(batch[REW].flatten().tolist()) <= {0.5, np.float32(0.5 + 0.5 * GAMMA)}


def test_a_compute_reward_that_reads_info_raises_an_error_with_a_remedy() -> None:
    needy = SimpleNamespace(num_envs=2, compute_reward=lambda achieved, desired, info: info["distance"])
    storage = HERBuffer.create_factory(size=20, her_ratio=1.0)("cpu", None, ALGORITHM, needy)
    with pytest.raises(
        ValueError, match=r"compute_reward reads 'distance' from info, .*; otherwise give a her_function"
    ):
        storage.insert_transition(GoalStream(2, np.random.default_rng(0)).step())
    assert len(storage) == 0


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda obs, rew: None, "(obs, rhs, obs2, rhs2, rew), got NoneType"),
        (lambda obs, rew: (obs, None, obs, None), "(obs, rhs, obs2, rhs2, rew), got 4 values"),
        (lambda obs, rew: (obs, None, obs, None, rew[:1]), "of shape {'Reward': (8, 1)}, got {'Reward': (1, 1)}"),
        (lambda obs, rew: (obs, None, obs, None, rew[:, 0]), "of shape {'Reward': (8, 1)}, got {'Reward': (8,)}"),
        (lambda obs, rew: (obs, None, obs, None, None), "of shape {'Reward': (8, 1)}, got {'Reward': ()}"),
        (lambda obs, rew: (obs["observation"], None, obs, None, rew), "got {'Observation': (8, 2)}"),
        (
            lambda obs, rew: (obs, None, {"observation": rew}, None, rew),
            "got {\"NextObservation['observation']\": (8, 1)}",
        ),
    ],
)
def test_invalid_return_values_of_a_her_function_are_refused(answer: Any, message: str) -> None:
    def her_function(obs: Any, rhs: Any, obs2: Any, rhs2: Any, rew: Any, first: Any, last: Any) -> Any:
        return answer(obs, rew)

    storage = HERBuffer.create_factory(size=20, her_function=her_function, her_ratio=1.0)(
        "cpu", None, ALGORITHM, SimpleNamespace(num_envs=2)
    )
    stream = GoalStream(2, np.random.default_rng(0))
    for _ in range(6):
        storage.insert_transition(stream.step())
    with pytest.raises(ValueError, match=f"HERBuffer: her_function must return .*{re.escape(message)}"):
        next(storage.generate_batches(1, 8))


def test_a_her_function_may_change_only_the_rewards() -> None:
    storage = HERBuffer.create_factory(
        size=20, her_function=lambda obs, rhs, obs2, rhs2, rew, first, last: (None, None, None, None, rew * 0 + 7)
    )("cpu", None, ALGORITHM, SimpleNamespace(num_envs=2))
    storage.insert_transition(GoalStream(2, np.random.default_rng(0)).step())
    storage.update_storage_parameter("her_ratio", 1.0)
    assert (next(storage.generate_batches(1, 4))[REW] == 7).all()


def test_copy_single_tensor_returns_a_field_of_one_step() -> None:
    storage, stream = made(2), GoalStream(2, np.random.default_rng(0))
    samples = [stream.step() for _ in range(20)]
    for sample in samples:
        storage.insert_transition(sample)
    np.testing.assert_array_equal(storage.copy_single_tensor(REW, 3), samples[8][REW])
    np.testing.assert_array_equal(storage.copy_single_tensor(OBS2, 14)["observation"], samples[19][OBS2]["observation"])
    with pytest.raises(IndexError, match="steps 15 to 16 are out of range, with 15"):
        storage.copy_single_tensor(REW, 15)
    with pytest.raises(KeyError, match="no field 'Rew'"):
        storage.copy_single_tensor("Rew", 0)

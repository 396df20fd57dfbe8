"""Evaluations play complete episodes of the original environment, and end in bounded time."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.scheme import EvaluationStoppedError
from pytorchrl.scheme.evaluation import evaluate
from tests.support.clocks import Clocks
from tests.support.comparison import assert_equal
from tests.support.compositions import dqn_scheme
from tests.support.toys import Counter

CLOCKS = ("seconds", "speed/steps_per_second")


class OneLifeAtATime(gym.Wrapper[Any, Any, Any, Any]):
    """Ends an episode after every third step, while the wrapped game continues until it is over."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.steps, self.is_over = 0, True
        self.shown: Any = None

    def reset(self, **arguments: Any) -> Any:
        if self.is_over:
            self.is_over = False
            return self.env.reset(**arguments)
        return self.shown, {}

    def step(self, action: Any) -> Any:
        self.shown, reward, self.is_over, truncated, info = self.env.step(action)
        self.steps += 1
        return self.shown, reward, self.is_over or self.steps % 3 == 0, truncated, info


REWARDS = [
    "NormalizeReward",
    ("ClipReward", {"max_reward": 1.0}),
    ("ScaleReward", {"factor": 0.1}),
    OneLifeAtATime,
    ("TransformReward", {"func": abs}),
]


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("wrapper", REWARDS, ids=str)
def test_returns_are_sums_of_original_rewards_over_complete_episodes(wrapper: Any, tmp_path: Path) -> None:
    # The rewards are 1, 2, ... 8.
    envs = prl.VecEnv.create_factory(Counter, num_envs=2, env_kwargs={"length": 8}, wrappers=[wrapper])
    learner = prl.Learner(dqn_scheme(envs=envs), 200, tmp_path / "run", log_every=50)
    assert learner.run()
    learner.close()
    records = prl.read_metrics(learner.log_dir / "metrics.jsonl")
    for name in ("train", "test"):
        returns = [record[f"{name}/return"] for record in records if f"{name}/return" in record]
        assert len(returns) >= 2
        assert set(returns) == {36.0}
        assert {record[f"{name}/episode_length"] for record in records if f"{name}/return" in record} == {8.0}


@pytest.mark.parametrize("num_envs", [1, 3])
def test_with_a_test_seed_all_evaluations_play_the_same_episodes(num_envs: int) -> None:
    scheme = dqn_scheme(test_envs_factory=prl.VecEnv.create_factory("CartPole-v1", num_envs=num_envs), test_seed=1_000)
    expected = returns_from_seeds(scheme.algorithm, range(1_000, 1_005))
    assert sorted(scheme.evaluate(5).returns) == sorted(expected)
    scheme.collect(scheme.steps + 20)
    assert scheme.steps > 0
    assert sorted(scheme.evaluate(5).returns) == sorted(expected)
    if num_envs == 1:
        assert scheme.evaluate(5).returns == expected
    calls = iter([*[False] * max(map(int, expected[:num_envs])), *[True] * 9])
    with pytest.raises(EvaluationStoppedError, match=f"stopped after {num_envs} of 5 episodes"):
        scheme.evaluate(5, stopped=lambda: next(calls))
    scheme.close()


def returns_from_seeds(algorithm: Any, seeds: Any) -> tuple[float, ...]:
    """Return what a policy reaches in a plain loop."""
    policy, env, returns = prl.TrainedPolicy(algorithm), gym.make("CartPole-v1"), []
    for seed in seeds:
        observation, _ = env.reset(seed=seed)
        total, ended = 0.0, False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(policy(observation))
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    return tuple(returns)


def test_a_test_seed_is_refused_for_environments_that_are_seeded_together() -> None:
    envs = prl.VecEnv.create_factory("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point")
    with pytest.raises(prl.CompositionError, match=r"'CartPole-v1' is a vector environment, whose copies are seeded"):
        dqn_scheme(envs=envs, test_seed=3)
    with pytest.raises(ValueError, match="Scheme: test_seed must be at least 0, got -1"):
        dqn_scheme(test_seed=-1)


def test_the_evaluate_command_says_by_its_seed_which_episodes_it_plays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with prl.Learner(dqn_scheme(), 60, tmp_path / "run") as learner:
        learner.run(progress=False)
        returns = returns_from_seeds(learner.scheme.algorithm, range(7, 10))
    monkeypatch.setattr(sys, "argv", ["", "evaluate", str(tmp_path / "run"), "--episodes", "3", "--seed", "7"])
    main()
    assert f"3 episodes: mean return {np.mean(returns):.2f} (95% interval" in capsys.readouterr().out


def test_a_share_of_the_actions_of_an_evaluation_is_random() -> None:
    class Counted(Counter):
        given: list[int] = []  # noqa: RUF012 - of all copies

        def step(self, action: Any) -> Any:
            self.given.append(int(action))
            return super().step(action)

    envs = prl.VecEnv.create_factory(Counted, num_envs=2, env_kwargs={"length": 100, "actions": spaces.Discrete(10)})
    with dqn_scheme(envs=envs) as scheme, envs() as tested:

        def actions(share: float) -> list[int]:
            Counted.given.clear()
            evaluate(scheme.algorithm, tested, 6, 3, random_share=share)
            return list(Counted.given)

        greedy, few, again = actions(0.0), actions(0.2), actions(0.2)
        differ = np.mean(np.array(greedy) != few)
        assert few == again
        # Of the random actions, a tenth are the greedy ones.
        assert 0.12 < differ < 0.24
        assert set(actions(1.0)) == set(range(10))
        with pytest.raises(ValueError, match=r"must lie in \[0, 1\], got 1.5"):
            actions(1.5)


def test_random_actions_are_refused_where_actions_are_not_discrete() -> None:
    envs = prl.VecEnv.create_factory("Pendulum-v1")
    message = "a share of random actions needs discrete actions, the environments have"
    with prl.compose("SAC", envs) as scheme, envs() as tested, pytest.raises(ValueError, match=message):
        evaluate(scheme.algorithm, tested, 1, 3, random_share=0.1)


def test_an_endless_episode_is_truncated_at_the_maximum_length_with_a_warning() -> None:
    scheme = dqn_scheme(
        envs=prl.VecEnv.create_factory(Counter, env_kwargs={"length": 10**9}), max_test_episode_steps=20
    )
    with pytest.warns(RuntimeWarning, match=r"was truncated after 20 steps: .*max_test_episode_steps="):
        evaluation = scheme.evaluate(3)
    # The environment plays no episode after the first one.
    assert evaluation.returns == (20 * 21 / 2,)
    assert evaluation.lengths == (20,)
    assert evaluation.metrics["test/episodes_cut"] == 1


def test_environments_play_their_share_of_episodes_beside_a_truncated_one() -> None:
    lengths = iter([2, 10**9])
    envs = prl.VecEnv(lambda: Counter(length=next(lengths)), num_envs=2)
    scheme = dqn_scheme(envs=prl.VecEnv.create_factory(Counter))
    with pytest.warns(RuntimeWarning, match="was truncated after"):
        evaluation = evaluate(scheme.algorithm, envs, 6, seed=0, max_episode_steps=5)
    assert evaluation.lengths == (2, 2, 5, 2)
    assert evaluation.episodes_cut == 1


def test_an_episode_of_exactly_the_maximum_length_is_complete() -> None:
    scheme = dqn_scheme(envs=prl.VecEnv.create_factory(Counter, env_kwargs={"length": 4}), max_test_episode_steps=4)
    evaluation = scheme.evaluate(2)
    assert evaluation.lengths == (4, 4)
    assert "test/episodes_cut" not in evaluation.metrics


@pytest.mark.parametrize("longest", [0, -1])
def test_a_maximum_length_below_one_step_is_refused(longest: int) -> None:
    with pytest.raises(ValueError, match=f"Scheme: max_test_episode_steps must be at least 1, got {longest}"):
        dqn_scheme(max_test_episode_steps=longest)


def test_a_stopped_evaluation_does_not_change_the_state() -> None:
    scheme = dqn_scheme(envs=prl.VecEnv.create_factory("CartPole-v1", wrappers=["NormalizeReward"]))
    scheme.evaluate(2)
    before = scheme.state_dict()
    calls = iter(range(10))
    with pytest.raises(EvaluationStoppedError, match="stopped after 0 of 2 episodes"):
        scheme.evaluate(2, stopped=lambda: next(calls) == 5)
    assert_equal(scheme.state_dict(), before)


class Presses(gym.Wrapper[Any, Any, Any, Any]):
    """Sends a signal in a step of an evaluation."""

    number: int | None = None

    def step(self, action: Any) -> Any:
        if Presses.number is not None:
            number, Presses.number = Presses.number, None
            os.kill(os.getpid(), number)
        return self.env.step(action)


@pytest.mark.parametrize(("number", "at"), [(signal.SIGINT, "in the middle"), (signal.SIGTERM, "at the end")])
def test_a_run_stopped_in_an_evaluation_repeats_it_when_resumed(
    number: int, at: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = 260 if at == "in the middle" else 200

    def scheme() -> prl.Scheme:
        train = prl.VecEnv.create_factory("CartPole-v1", num_envs=2)
        return dqn_scheme(
            envs=train,
            test_envs_factory=prl.VecEnv.create_factory("CartPole-v1", wrappers=["NormalizeReward", Presses]),
        )

    def final_state(learner: prl.Learner) -> Any:
        state = learner.scheme.state_dict()
        learner.close()
        records = prl.read_metrics(learner.log_dir / "metrics.jsonl")
        return state, [{name: value for name, value in record.items() if name not in CLOCKS} for record in records]

    whole = prl.Learner(scheme(), target, tmp_path / "whole", log_every=30)
    assert whole.run()
    learner = prl.Learner(scheme(), target, tmp_path / "run", log_every=30)
    while learner.scheme.steps < 190:
        learner.step()
    monkeypatch.setattr(Presses, "number", number)
    assert learner.run() == (at == "at the end")
    learner.close()
    printed = capsys.readouterr().out
    stopped = "Stopped at 200 of 260 steps" if at == "in the middle" else "Stopped in the last evaluation"
    assert f"{stopped}; continue with\n  {learner.resume_command}\n" in printed
    resumed = prl.Learner.resume(tmp_path / "run", scheme=scheme())
    assert resumed.scheme.steps == 200
    assert resumed.run()
    assert_equal(final_state(resumed), final_state(whole))


def test_a_run_whose_episodes_never_end_reaches_its_target(tmp_path: Path) -> None:
    envs = prl.VecEnv.create_factory(Counter, env_kwargs={"length": 10**9})
    learner = prl.Learner(dqn_scheme(envs=envs, max_test_episode_steps=30), 200, tmp_path / "run")
    with pytest.warns(RuntimeWarning, match="was truncated after"):
        assert learner.run()
    learner.close()
    # The metrics are saved with the run.
    resumed = prl.Learner.resume(tmp_path / "run", scheme=dqn_scheme(envs=envs, max_test_episode_steps=30))
    assert resumed.get_metrics()["test/episode_length"] == 30


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_resets_of_vector_environments_do_not_count_towards_the_length_of_an_episode(mode: AutoresetMode) -> None:
    envs = prl.VecEnv.create_factory(Clocks, 2, env_kwargs={"mode": mode})
    scheme = dqn_scheme(envs=envs, max_test_episode_steps=2, algorithm={"num_test_episodes": 6})
    evaluation = scheme.evaluate(6)
    assert evaluation.lengths == (2, 2, 2, 2, 2, 2)
    assert evaluation.episodes_cut == 0
    scheme.close()


@pytest.mark.parametrize(("kind", "actions"), [("image", None), ("dict", None), ("vector", gym.spaces.Discrete(3))])
def test_test_environments_of_other_spaces_are_refused(kind: str, actions: Any) -> None:
    envs, other = (
        prl.VecEnv.create_factory(Counter, env_kwargs=given) for given in ({}, {"kind": kind, "actions": actions})
    )
    with pytest.raises(prl.CompositionError, match="but the environments of test_envs_factory have"):
        prl.Scheme(
            prl.DQN.create_factory(),
            prl.OffPolicyActor.create_factory(),
            prl.ReplayBuffer.create_factory(size=9),
            envs,
            other,
        )


@pytest.mark.parametrize(("low", "high", "is_refused"), [(-1, 1, False), (-2, 1, True), (-1, 1.5, True)])
def test_test_environments_with_other_bounds_of_actions_are_refused(low: float, high: float, is_refused: bool) -> None:
    of_training, of_tests = spaces.Box(-1, 1, (2,), np.float32), spaces.Box(low, high, (2,), np.float64)

    def made() -> prl.Scheme:
        return prl.Scheme(
            prl.SAC.create_factory(),
            prl.OffPolicyActor.create_factory(),
            prl.ReplayBuffer.create_factory(size=9),
            prl.VecEnv.create_factory(Counter, env_kwargs={"actions": of_training}),
            prl.VecEnv.create_factory(Counter, env_kwargs={"actions": of_tests}),
        )

    if is_refused:
        with pytest.raises(prl.CompositionError, match=rf"action space Box\(-1.0, 1.0, .* have Box\({low}.0, {high}"):
            made()
    else:
        scheme = made()
        scheme.evaluate(1)
        scheme.close()


@pytest.mark.parametrize("seed", [None, True, -1, 1.5])
def test_a_seed_that_is_no_number_from_0_is_refused(seed: Any) -> None:
    with pytest.raises(ValueError, match="Scheme: seed must be"):
        dqn_scheme(seed=seed)

"""Logged returns are those of the environments, regardless of wrappers and of the normalisation of rewards."""

import tempfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from hypothesis import given, settings
from hypothesis import strategies as st

import pytorchrl as prl
from storages.transition import DONE2, REW, TRUNC2
from tests.support.comparison import assert_equal
from tests.support.profiles import examples
from tests.support.training import saved_and_loaded, train

TEST_EVERY, STEPS, TEST_EPISODES = 60, 120, 3
_TEST_ENVS = 5
"""Number of the evaluations' stream among the streams of random numbers of a run's seed."""


class Uneven(gym.Env[Any, Any]):
    """Observations and rewards of very different scales; episodes end at random, terminated or truncated."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def __init__(self, actions: Any = None) -> None:
        self.action_space = actions or spaces.Discrete(3)

    def _observation(self) -> Any:
        return self.np_random.normal([1000.0, 0.0, -3.0], [50.0, 0.001, 2.0]).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        draw = self.np_random.random()
        reward = self.np_random.normal(-20, 100) + float(np.sum(action))
        return self._observation(), reward, draw < 0.05, draw > 0.95, {}


class ReturnRecorder(gym.Wrapper[Any, Any, Any, Any]):
    """Records the returns of the wrapped environment, and does not change it."""

    def __init__(self, env: gym.Env[Any, Any], recorded: list[tuple[int, float]], copy: int) -> None:
        super().__init__(env)
        self.recorded, self.copy, self.rewards = recorded, copy, list[float]()

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self.rewards.append(float(result[1]))
        if result[2] or result[3]:
            self._finish()
        return result

    def reset(self, **arguments: Any) -> Any:
        self._finish()
        return self.env.reset(**arguments)

    def _finish(self) -> None:
        if self.rewards:
            self.recorded.append((self.copy, sum(self.rewards)))
            self.rewards = []


class ReturnRecorders:
    """Wraps each copy of the environment in a recorder: those of training first, then that of evaluations."""

    def __init__(self) -> None:
        self.copies = 0
        self.recorded: list[tuple[int, float]] = []

    def __call__(self, env: gym.Env[Any, Any]) -> ReturnRecorder:
        self.copies += 1
        return ReturnRecorder(env, self.recorded, self.copies - 1)

    def returns(self, first: int, end: int | None = None) -> list[float]:
        return [value for copy, value in self.recorded if copy >= first and (end is None or copy < end)]


WRAPPERS: list[Any] = [
    "NormalizeReward",
    ("ScaleReward", {"factor": 0.01}),
    ("ClipReward", {"min_reward": -1.0, "max_reward": 0.5}),
    ("TransformReward", {"func": lambda reward: 3 * reward + 7}),
    ("TimeLimit", {"max_episode_steps": 7}),
]
ENVIRONMENTS: dict[str, dict[str, tuple[Any, dict[str, Any]]]] = {
    "own": {
        "discrete": (Uneven, {}),
        "box": (Uneven, {"actions": spaces.Box(-2, 2, (2,), np.float32)}),
    },
    "gymnasium": {
        "discrete": ("CartPole-v1", {"max_episode_steps": 15}),
        "box": ("Pendulum-v1", {"max_episode_steps": 15}),
    },
}


def scheme_of(
    algorithm: str,
    environment: str = "own",
    wrappers: Any = (),
    num_envs: int = 3,
    normalize_rewards: Any = "returns",
    seed: int = 0,
    normalize_observations: bool = True,
) -> prl.Scheme:
    actions = "discrete" if algorithm == "dqn" else "box"
    env, arguments = ENVIRONMENTS[environment][actions]
    envs = prl.VecEnv.create_factory(env, num_envs=num_envs, wrappers=wrappers, env_kwargs=arguments)
    evaluation: Any = {"test_every": TEST_EVERY, "num_test_episodes": TEST_EPISODES}
    replayed: Any = evaluation | {"start_steps": 30, "mini_batch_size": 8, "update_every": 5}
    body: Any = {"hidden_sizes": (8,), "normalize_observations": normalize_observations}
    parts: Any = {
        "dqn": (prl.DQN.create_factory(**replayed), prl.OffPolicyActor, prl.ReplayBuffer.create_factory(size=100)),
        "sac": (prl.SAC.create_factory(**replayed), prl.OffPolicyActor, prl.ReplayBuffer.create_factory(size=100)),
        "ppo": (prl.PPO.create_factory(**evaluation), prl.OnPolicyActor, prl.GAEBuffer.create_factory(size=12)),
    }[algorithm]
    algo, actor, storage = parts
    return prl.Scheme(algo, actor.create_factory(**body), storage, envs, normalize_rewards=normalize_rewards, seed=seed)


class Stored:
    """Sums the rewards that the storage receives in each episode, and counts steps."""

    def __init__(self, scheme: prl.Scheme) -> None:
        self.ended: list[tuple[int, float]] = []
        self.steps = 0
        self.rewards: list[list[float]] = [[] for _ in range(scheme.envs.num_envs)]  # type: ignore[union-attr]
        self._insert = scheme.storage.insert_transition
        scheme.storage.insert_transition = self.insert  # type: ignore[method-assign]

    def insert(self, sample: Any) -> Any:
        result = self._insert(sample)
        self.steps += len(self.rewards)
        for rewards, reward, over in zip(self.rewards, sample[REW], sample[DONE2] | sample[TRUNC2], strict=True):
            rewards.append(float(reward.item()))
            if over:
                self.ended.append((self.steps, sum(rewards)))
                rewards.clear()
        return result


def returns_by_policy(run: Path, environment: str, actions: str, wrappers: Any, seed: int, steps: int) -> list[float]:
    """Returns of the first episodes of the evaluation at a step, by the saved policy in a plain loop."""
    policy = prl.load_policy(run)
    made, arguments = ENVIRONMENTS[environment][actions]
    env = gym.make(made, **arguments) if isinstance(made, str) else made(**arguments)
    if any(wrapper[0] == "TimeLimit" for wrapper in wrappers):
        env = TimeLimit(env, max_episode_steps=7)
    first: int | None = int(np.random.SeedSequence(seed, spawn_key=(_TEST_ENVS, steps)).generate_state(1)[0])
    returns = []
    for _ in range(TEST_EPISODES):
        observation, _ = env.reset(seed=first)
        policy.reset()
        first, total, over = None, 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(policy(observation))
            # From Python 3.12 on, `sum` rounds otherwise.
            total += float(reward)
            over = terminated or truncated
        returns.append(total)
    return returns


@pytest.mark.long
@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(
    algorithm=st.sampled_from(["dqn", "sac", "ppo"]),
    environment=st.sampled_from(sorted(ENVIRONMENTS)),
    wrappers=st.lists(st.sampled_from(WRAPPERS), max_size=3, unique_by=repr),
    num_envs=st.sampled_from([1, 3]),
    normalize_rewards=st.sampled_from(["returns", "rewards"]),
    log_every=st.sampled_from([30, 1000]),
    seed=st.integers(0, 1000),
)
def test_logged_returns_equal_those_recorded_in_the_environments(
    algorithm: str,
    environment: str,
    wrappers: list[Any],
    num_envs: int,
    normalize_rewards: Any,
    log_every: int,
    seed: int,
) -> None:
    recorders = ReturnRecorders()
    if "NormalizeReward" in wrappers:
        normalize_rewards = None  # twice is refused
    scheme = scheme_of(algorithm, environment, [recorders, *wrappers], num_envs, normalize_rewards, seed)
    stored = Stored(scheme)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        learner = prl.Learner(scheme, STEPS, run, log_every=log_every)
        while not learner.done():
            learner.step()
        learner.save_checkpoint()
        recorded, tested, before = recorders.returns(0, num_envs), recorders.returns(num_envs), 0
        assert recorded
        assert tested
        for record in prl.read_metrics(run / "metrics.jsonl"):
            if "test/return" in record:
                episodes, tested = tested[:TEST_EPISODES], tested[TEST_EPISODES:]
                assert record["test/return"] == pytest.approx(np.mean(episodes), rel=1e-12)
                continue
            steps = int(record["steps"])
            if "train/return" in record:
                episodes = [recorded.pop(0) for _ in range(int(record["train/episodes"]))]
                assert record["train/return"] == pytest.approx(np.mean(episodes), rel=1e-12)
            shaped = [value for end, value in stored.ended if before < end <= steps]
            assert record.get("train/shaped_return") == (pytest.approx(np.mean(shaped)) if shaped else None)
            before = steps
        assert recorded == []
        assert tested == []
        actions = "discrete" if algorithm == "dqn" else "box"
        by_policy = returns_by_policy(run, environment, actions, wrappers, seed, scheme.steps)
        assert list(scheme.evaluate(TEST_EPISODES).returns) == by_policy
        learner.close()


@pytest.mark.parametrize(
    ("wrappers", "normalize_rewards", "is_shaped"),
    [((), None, False), ((), "returns", True), ([("ScaleReward", {"factor": 0.01})], None, True)],
)
def test_shaped_returns_are_logged_if_rewards_may_differ_from_the_environments(
    wrappers: Any, normalize_rewards: Any, is_shaped: bool, tmp_path: Path
) -> None:
    learner = prl.Learner(
        scheme_of("dqn", wrappers=wrappers, normalize_rewards=normalize_rewards), STEPS, tmp_path / "run"
    )
    learner.run()
    metrics = learner.get_metrics()
    learner.close()
    assert ("train/shaped_return" in metrics) == is_shaped
    if normalize_rewards is None and is_shaped:
        assert metrics["train/shaped_return"] == pytest.approx(0.01 * metrics["train/return"], rel=1e-5)


@pytest.mark.parametrize(
    ("algorithm", "normalize_rewards", "is_told"),
    [("dqn", "rewards", True), ("ppo", "rewards", False), ("dqn", None, False)],
)
def test_a_replay_that_will_keep_rewards_of_several_scales_is_told_once(
    algorithm: str, normalize_rewards: Any, is_told: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = "ReplayBuffer keeps rewards as they were divided when they were collected"
    with prl.Learner(scheme_of(algorithm, normalize_rewards=normalize_rewards), 60, tmp_path / "run") as learner:
        learner.run()
    assert (told in capsys.readouterr().out) is is_told
    given = scheme_of(algorithm, normalize_rewards=normalize_rewards)
    with prl.Learner.resume(tmp_path / "run", scheme=given, target_steps=90) as learner:
        learner.run()
    assert told not in capsys.readouterr().out


@pytest.mark.parametrize("normalize_rewards", ["returns", "rewards"])
@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
def test_reward_statistics_are_shared_by_all_environments_and_frozen_in_evaluations(
    algorithm: str, normalize_rewards: Any
) -> None:
    scheme = scheme_of(algorithm, normalize_rewards=normalize_rewards)
    rewards: list[Any] = []
    step = scheme.envs.step  # type: ignore[union-attr]
    scheme.envs.step = lambda actions: [taken := step(actions), rewards.append(taken.reward)][0]  # type: ignore
    train(scheme, 120)
    before = saved_and_loaded(scheme.state_dict())
    scheme.evaluate(2)
    after = saved_and_loaded(scheme.state_dict())
    for name in ("collector", "algorithm"):
        assert_equal(before[name], after[name])
    statistics = before["collector"]["rewards"]
    assert statistics["count"] == 120
    assert statistics["mean"].shape == statistics["squares"].shape == (1,)
    if normalize_rewards == "rewards":
        all_rewards = np.concatenate(rewards).astype(float)
        assert statistics["mean"].item() == pytest.approx(all_rewards.mean(), rel=1e-9)
        assert statistics["squares"].item() / 120 == pytest.approx(all_rewards.var(), rel=1e-9)

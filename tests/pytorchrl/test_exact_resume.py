"""A run that was stopped anywhere and resumed is the run that was not stopped, to the bit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from compositions import assert_equal

import pytorchrl as prl

SEQUENCES = prl.Sequences(6, burn_in=2)
PRIORITIES_AND_RECENCY = prl.EREBuffer.create_factory(
    size=40, n_step=3, alpha=prl.LinearSchedule(0.6, 0.2), epsilon=0.01, beta=0.4, eta=0.99, cmin=20, adapt_eta=True
)


def dqn(storage: Any, memory: Any = None, wrappers: Any = (), **envs: Any) -> prl.Scheme:
    return prl.Scheme(
        prl.DQN.create_factory(start_steps=24, update_every=9, mini_batch_size=8, test_every=70, num_test_episodes=2),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=8),
        storage,
        prl.VecEnv.create_factory(envs.pop("env", "CartPole-v1"), wrappers=wrappers, **envs),
    )


def sac(num_envs: int, memory: Any = None) -> prl.Scheme:
    return prl.Scheme(
        prl.SAC.create_factory(start_steps=24, update_every=6, mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=8),
        prl.ReplayBuffer.create_factory(size=60, sequences=SEQUENCES if memory else None),
        prl.VecEnv.create_factory("Pendulum-v1", num_envs, env_kwargs={"max_episode_steps": 23}),
    )


def ppo(num_envs: int, env: str = "CartPole-v1", memory: Any = None) -> prl.Scheme:
    return prl.Scheme(
        prl.PPO.create_factory(
            lr=prl.LinearSchedule(1e-3, 0.0), num_epochs=2, num_mini_batch=1, test_every=90, num_test_episodes=1
        ),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=8),
        prl.GAEBuffer.create_factory(size=16),
        prl.VecEnv.create_factory(env, num_envs, env_kwargs={"max_episode_steps": 30}),
    )


replay = prl.ReplayBuffer.create_factory(size=60)
SCHEMES: dict[str, Callable[[], prl.Scheme]] = {
    "DQN": lambda: dqn(replay),
    "DQN in 4 environments": lambda: dqn(replay, num_envs=4),
    "DQN in 4 processes": lambda: dqn(replay, num_envs=4, mode="async"),
    "DQN with priorities and recency": lambda: dqn(PRIORITIES_AND_RECENCY, num_envs=2),
    "DQN with a memory": lambda: dqn(
        prl.ReplayBuffer.create_factory(size=60, sequences=SEQUENCES), memory="lstm", num_envs=2
    ),
    "DQN in hindsight": lambda: dqn(
        prl.HERBuffer.create_factory(size=60), env="pytorchrl/BitFlipping-v0", env_kwargs={"n": 5}, num_envs=2
    ),
    "DQN of stacked frames": lambda: dqn(replay, wrappers=[("FrameStackObservation", {"stack_size": 3})], num_envs=2),
    "DQN of normalised observations and rewards": lambda: dqn(
        replay, wrappers=["NormalizeObservation", "NormalizeReward"], num_envs=2
    ),
    "SAC": lambda: sac(1),
    "SAC in 4 environments": lambda: sac(4),
    "SAC with a memory": lambda: sac(2, "gru"),
    "PPO": lambda: ppo(1),
    "PPO in 4 environments": lambda: ppo(4, "Pendulum-v1"),
    "PPO with a memory": lambda: ppo(4, memory="gru"),
}
CLOCKS = ("seconds", "speed/steps_per_second")


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def ended(learner: prl.Learner) -> tuple[Any, Any]:
    """Everything that a run comes to: its state, and what was logged on the way."""
    state = learner.scheme.state_dict()
    learner.close()
    records = prl.read_metrics(learner.log_dir / "metrics.jsonl")
    return state, [{name: value for name, value in record.items() if name not in CLOCKS} for record in records]


def stopped(learner: prl.Learner, at: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run, and be interrupted when so many steps were collected."""
    monkeypatch.setattr(learner._interruption, "is_requested", lambda: learner.scheme.steps >= at)
    assert not learner.run()
    assert at <= learner.scheme.steps < at + 4
    learner.close()
    return learner.log_dir


@pytest.mark.parametrize("name", SCHEMES)
def test_a_resumed_run_is_the_run_that_was_not_stopped(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = prl.Learner(SCHEMES[name](), 260, tmp_path / "whole", log_every=30)
    assert whole.run()
    state, records = ended(whole)
    # In random actions, between updates, in an episode; then before anything new is due.
    learner = prl.Learner(SCHEMES[name](), 260, tmp_path / "parts", log_every=30)
    for stop in (13, 117, 121):
        # What made a part of the run is not there any more.
        scheme = None if "processes" in name else SCHEMES[name]()
        learner = prl.Learner.resume(stopped(learner, stop, monkeypatch), scheme=scheme)
    assert learner.run()
    state_of_parts, records_of_parts = ended(learner)
    assert_equal(state_of_parts, state)
    assert records_of_parts == records
    assert "did not come back" not in capsys.readouterr().out

"""A run that is stopped at any step and resumed equals the uninterrupted run, bit for bit."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from storages.transition import DISCOUNT, DONE, INDICES, OBS, OBS2
from tests.support.comparison import assert_equal
from tests.support.memories import FastWeights, LinearAfterGRU, MinimalGatedUnit, WithTrace
from tests.support.toys import Counter

SEQUENCES = prl.Sequences(6, burn_in=2)
PRIORITIES_AND_RECENCY = prl.EREBuffer.create_factory(
    size=40, n_step=3, alpha=prl.LinearSchedule(0.6, 0.57), epsilon=0.01, beta=0.4, eta=0.99, cmin=20, adapt_eta=True
)


def dqn(
    storage: Any,
    memory: Any = None,
    wrappers: Any = (),
    normalize_observations: bool = False,
    normalize_rewards: Any = None,
    **envs: Any,
) -> prl.Scheme:
    return prl.Scheme(
        prl.DQN.create_factory(start_steps=24, update_every=9, mini_batch_size=8, test_every=70, num_test_episodes=2),
        prl.OffPolicyActor.create_factory(
            hidden_sizes=(8,), memory=memory, memory_size=8, normalize_observations=normalize_observations
        ),
        storage,
        prl.VecEnv.create_factory(envs.pop("env", "CartPole-v1"), wrappers=wrappers, **envs),
        normalize_rewards=normalize_rewards,
    )


def sac(num_envs: int, memory: Any = None) -> prl.Scheme:
    return prl.Scheme(
        prl.SAC.create_factory(start_steps=24, update_every=6, mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=8),
        prl.ReplayBuffer.create_factory(size=60, sequences=SEQUENCES if memory else None),
        prl.VecEnv.create_factory("Pendulum-v1", num_envs, env_kwargs={"max_episode_steps": 23}),
    )


def qrdqn(memory: Any = None) -> prl.Scheme:
    return prl.Scheme(
        prl.QRDQN.create_factory(
            num_quantiles=5,
            polyak=0.0,
            target_update_interval=4,
            start_steps=24,
            update_every=6,
            mini_batch_size=8,
            test_every=70,
            num_test_episodes=2,
        ),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=8),
        _priorities_and_n_steps(memory),
        prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
    )


def rainbow() -> prl.Scheme:
    return prl.Scheme(
        prl.Rainbow.create_factory(
            num_atoms=5, target_update_interval=4, start_steps=24, update_every=6, mini_batch_size=8, test_every=0
        ),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), dueling=True, noisy=True),
        prl.PERBuffer.create_factory(
            size=60, n_step=3, alpha=0.5, beta=prl.LinearSchedule(0.4, 1.0), default_error="largest"
        ),
        prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
    )


def iqn(memory: Any = None) -> prl.Scheme:
    return prl.Scheme(
        prl.IQN.create_factory(
            num_quantiles=5,
            risk=prl.risk_measures.CVaR(0.5),
            start_steps=24,
            update_every=6,
            mini_batch_size=8,
            test_every=70,
            num_test_episodes=2,
        ),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=8, noisy=True),
        _priorities_and_n_steps(memory),
        prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
    )


def r2d2(memory: Any = "lstm") -> prl.Scheme:
    return prl.Scheme(
        prl.R2D2.create_factory(
            target_update_interval=4, start_steps=24, update_every=6, mini_batch_size=8, test_every=0
        ),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=8),
        prl.PERBuffer.create_factory(
            size=60, n_step=5, alpha=0.9, beta=0.6, sequences=prl.Sequences(6, burn_in=2, overlap=3)
        ),
        prl.VecEnv.create_factory("CartPole-v1", num_envs=3),
    )


def td3(policy_delay: int, memory: Any = None) -> prl.Scheme:
    return prl.Scheme(
        prl.TD3.create_factory(
            lr_pi=prl.LinearSchedule(1e-3, 0.0),
            policy_delay=policy_delay,
            start_steps=24,
            update_every=6,
            mini_batch_size=8,
            test_every=0,
        ),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=8),
        _priorities_and_n_steps(memory),
        prl.VecEnv.create_factory("Pendulum-v1", 2, env_kwargs={"max_episode_steps": 23}),
    )


def naf(memory: Any = None) -> prl.Scheme:
    return prl.Scheme(
        prl.NAF.create_factory(
            polyak=0.0, target_update_interval=4, start_steps=24, update_every=6, mini_batch_size=8, test_every=0
        ),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=8, dueling=True, noisy=True),
        _priorities_and_n_steps(memory),
        prl.VecEnv.create_factory("Pendulum-v1", 2, env_kwargs={"max_episode_steps": 23}),
    )


def sac_discrete(memory: Any = None) -> prl.Scheme:
    return prl.Scheme(
        prl.SACDiscrete.create_factory(
            target_entropy_share=prl.LinearSchedule(0.9, 0.1),
            start_steps=24,
            update_every=6,
            mini_batch_size=8,
            test_every=0,
        ),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=8),
        _priorities_and_n_steps(memory),
        prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
    )


def _priorities_and_n_steps(memory: Any) -> Any:
    return prl.PERBuffer.create_factory(
        size=60, n_step=3, alpha=0.6, beta=0.4, epsilon=0.01, sequences=SEQUENCES if memory else None
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


def trpo(memory: Any = None) -> prl.Scheme:
    return prl.Scheme(
        prl.TRPO.create_factory(
            max_kl=prl.LinearSchedule(0.05, 0.0),
            cg_iterations=3,
            backtracks=3,
            value_epochs=2,
            test_every=90,
            num_test_episodes=1,
        ),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=8),
        prl.GAEBuffer.create_factory(size=16),
        prl.VecEnv.create_factory("Pendulum-v1", 2, env_kwargs={"max_episode_steps": 30}),
    )


def reinforce(memory: Any = None) -> prl.Scheme:
    return prl.Scheme(
        prl.REINFORCE.create_factory(
            lr=prl.LinearSchedule(1e-2, 0.0), episodes_per_update=4, test_every=90, num_test_episodes=1
        ),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=8),
        prl.VanillaOnPolicyBuffer.create_factory(size=40),
        prl.VecEnv.create_factory("CartPole-v1", 3, env_kwargs={"max_episode_steps": 30}),
    )


def rnd(memory: Any = None) -> prl.Scheme:
    return prl.Scheme(
        prl.RND.create_factory(
            lr=prl.LinearSchedule(1e-3, 0.0),
            desired_kl=1e-4,
            num_features=4,
            num_epochs=2,
            num_mini_batch=1,
            test_every=0,
        ),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=8),
        prl.GAEBuffer.create_factory(size=16),
        prl.VecEnv.create_factory("CartPole-v1", 2, env_kwargs={"max_episode_steps": 30}),
    )


def sarsa(next_action: Any, memory: Any = None) -> prl.Scheme:
    return prl.Scheme(
        prl.SARSA.create_factory(
            next_action=next_action, epsilon=0.5, start_steps=24, update_every=6, mini_batch_size=8, test_every=0
        ),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=8),
        _priorities_and_n_steps(memory),
        prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
    )


def nstep_q_learning(memory: Any = None) -> prl.Scheme:
    return prl.Scheme(
        prl.NStepQLearning.create_factory(
            lr=prl.LinearSchedule(1e-3, 0.0), target_update_interval_steps=50, test_every=90, num_test_episodes=1
        ),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=8),
        prl.VanillaOnPolicyBuffer.create_factory(size=5),
        prl.VecEnv.create_factory("CartPole-v1", 3),
    )


def pqn(memory: Any = None) -> prl.Scheme:
    return prl.Scheme(
        prl.PQN.create_factory(num_epochs=2, num_mini_batch=2, test_every=90, num_test_episodes=1),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), layer_norm=True, memory=memory, memory_size=8),
        prl.LambdaReturnBuffer.create_factory(size=5),
        prl.VecEnv.create_factory("CartPole-v1", 3),
    )


def option_critic(memory: Any = None) -> prl.Scheme:
    return prl.Scheme(
        prl.OptionCritic.create_factory(lr=prl.LinearSchedule(1e-3, 0.0), test_every=90, num_test_episodes=1),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=8),
        prl.GAEBuffer.create_factory(size=5),
        prl.VecEnv.create_factory("CartPole-v1", 3),
    )


def model_based(algorithm: Any) -> prl.Scheme:
    return prl.Scheme(
        algorithm,
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), normalize_observations=True),
        prl.PERBuffer.create_factory(size=60),
        prl.VecEnv.create_factory("Pendulum-v1", 2, env_kwargs={"max_episode_steps": 23}),
    )


def pets() -> prl.Scheme:
    planner = prl.planners.CrossEntropy(3, num_iterations=2, num_samples=6, num_elites=2)
    settings: dict[str, Any] = {"start_steps": 24, "update_every": 6, "mini_batch_size": 8}
    return model_based(
        prl.PETS.create_factory(
            planner=planner, ensemble_size=2, test_every=90, num_test_episodes=1, max_grad_norm=1.0, **settings
        )
    )


def mbpo() -> prl.Scheme:
    return model_based(
        prl.MBPO.create_factory(
            ensemble_size=2,
            rollout_length=prl.LinearSchedule(1, 3),
            num_mini_batch=2,
            start_steps=24,
            update_every=6,
            mini_batch_size=8,
            test_every=0,
        )
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
        replay, wrappers=["NormalizeReward"], normalize_observations=True, num_envs=2
    ),
    "DQN of rewards normalised by the scheme": lambda: dqn(replay, normalize_rewards="returns", num_envs=2),
    "SAC": lambda: sac(1),
    "SAC in 4 environments": lambda: sac(4),
    "SAC with a memory": lambda: sac(2, "gru"),
    "QR-DQN with priorities and n steps": qrdqn,
    "QR-DQN with a memory": lambda: qrdqn("gru"),
    "Rainbow": rainbow,
    "SAC with a memory of one's own": lambda: sac(2, MinimalGatedUnit),
    "R2D2": r2d2,
    "R2D2 with stacked memories of one's own": lambda: r2d2(("lstm", WithTrace, LinearAfterGRU)),
    "IQN of noisy layers with priorities and n steps": iqn,
    "IQN with a memory": lambda: iqn("gru"),
    "SARSA with priorities and n steps": lambda: sarsa("taken"),
    "SARSA with actions chosen anew and a memory": lambda: sarsa("policy", "gru"),
    "PQN": pqn,
    "PQN with a memory": lambda: pqn("lstm"),
    "OptionCritic": option_critic,
    "OptionCritic with a memory": lambda: option_critic("gru"),
    "n-step Q-learning": nstep_q_learning,
    "n-step Q-learning with a memory": lambda: nstep_q_learning("lstm"),
    "TD3 with priorities and n steps": lambda: td3(2),
    "TD3 with a memory, stopped in the middle of its delay": lambda: td3(4, "lstm"),
    "NAF with priorities and n steps": naf,
    "NAF with a memory": lambda: naf("gru"),
    "SACDiscrete with priorities and n steps": sac_discrete,
    "SACDiscrete with a memory": lambda: sac_discrete("lstm"),
    "PETS with priorities": pets,
    "MBPO with priorities": mbpo,
    "PPO": lambda: ppo(1),
    "PPO in 4 environments": lambda: ppo(4, "Pendulum-v1"),
    "PPO with a memory": lambda: ppo(4, memory="gru"),
    "PPO with a memory and layers after it": lambda: ppo(4, memory=LinearAfterGRU),
    "PPO with a memory of one's own": lambda: ppo(4, memory=FastWeights),
    "RND": rnd,
    "RND with a memory": lambda: rnd("gru"),
    "TRPO": trpo,
    "TRPO with a memory": lambda: trpo("lstm"),
    "REINFORCE, stopped between the episodes of an update": reinforce,
    "REINFORCE with a memory": lambda: reinforce("gru"),
}
CLOCKS = ("seconds", "speed/steps_per_second")


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def result_of(learner: prl.Learner) -> tuple[Any, Any]:
    """The result of a run: its state, and its logged records."""
    state = learner.scheme.state_dict()
    learner.close()
    records = prl.read_metrics(learner.log_dir / "metrics.jsonl")
    return state, [{name: value for name, value in record.items() if name not in CLOCKS} for record in records]


def stopped(learner: prl.Learner, at: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run until an interruption after a number of steps, and return the run folder."""
    monkeypatch.setattr(learner._interruption, "is_requested", lambda: learner.scheme.steps >= at)
    assert not learner.run()
    assert at <= learner.scheme.steps < at + 4
    learner.close()
    return learner.log_dir


SLOW = ("NAF", "RND", "SACDiscrete", "R2D2", "memory", "processes", "frames", "normalised", "hindsight", "recency")


@pytest.mark.quick_share(0.07, long=0.6)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long) if any(w in name for w in SLOW) else name for name in SCHEMES],
)
def test_a_resumed_run_equals_the_uninterrupted_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = prl.Learner(SCHEMES[name](), 260, tmp_path / "whole", log_every=30)
    assert whole.run()
    state, records = result_of(whole)
    # During random actions; between updates, within an episode; and again a few steps later.
    learner = prl.Learner(SCHEMES[name](), 260, tmp_path / "parts", log_every=30)
    for stop in (13, 117, 121):
        # The objects of the stopped run are not used any more.
        scheme = None if "processes" in name else SCHEMES[name]()
        learner = prl.Learner.resume(stopped(learner, stop, monkeypatch), scheme=scheme)
    assert learner.run()
    state_of_parts, records_of_parts = result_of(learner)
    assert_equal(state_of_parts, state)
    assert records_of_parts == records
    assert "could not be restored" not in capsys.readouterr().out


class Robot(Counter):
    """An environment whose state cannot be restored: each instance shows another place."""

    made = 0

    def __init__(self) -> None:
        super().__init__(length=50)
        Robot.made += 1
        self.place = Robot.made

    def _observation(self) -> Any:
        return np.array([self.count, self.place], np.float32)


def test_an_episode_that_cannot_be_restored_is_truncated_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def scheme() -> prl.Scheme:
        made = iter([Robot, lambda: Counter(length=50)])
        storage = prl.NStepReplayBuffer.create_factory(size=60, n_step=3)
        return dqn(storage, env=lambda: next(made)(), num_envs=2)

    learner = prl.Learner(scheme(), 60, tmp_path / "run", log_every=10)
    resumed = prl.Learner.resume(stopped(learner, 20, monkeypatch), scheme=scheme())
    printed = capsys.readouterr().out
    assert "1 of 2 environments could not be restored (number 0)" in printed
    record = prl.read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]
    assert record["steps"] == 20
    assert record["train/episodes_cut_by_resume"] == 1
    while resumed.scheme.steps < 40:
        resumed.step()
    stored = resumed.scheme.storage.get_all_buffer_data()
    # Ten steps were made before the stop; one environment begins a new episode, the other continues its own.
    assert stored[OBS][:12, :, 0].tolist() == [[step % 10, step] for step in range(12)]
    assert stored[OBS2][:12, :, 0].tolist() == [[step % 10 + 1, step + 1] for step in range(12)]
    assert stored[DONE][:12, 0, 0].nonzero().ravel().tolist() == [0, 10]
    assert stored[DONE][:12, 1, 0].nonzero().ravel().tolist() == [0]
    # N-step returns end with the episode, and bootstrap from its last observation.
    batch = next(iter(resumed.scheme.storage.generate_batches(1, 2_000)))
    rewards_summed = {
        int(index): round(math.log(discount) / math.log(0.99))
        for index, discount in zip(batch[INDICES][:, 0], batch[DISCOUNT][:, 0], strict=True)
    }
    assert [rewards_summed[2 * step] for step in range(6, 12)] == [3, 3, 2, 1, 3, 3]
    assert [rewards_summed[2 * step + 1] for step in range(6, 12)] == [3] * 6


def test_a_run_without_replay_on_resume_begins_new_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    learner = prl.Learner(dqn(replay, num_envs=2, replay_on_resume=False), 60, tmp_path / "run")
    resumed = prl.Learner.resume(stopped(learner, 20, monkeypatch))
    assert "2 of 2 environments could not be restored (number 0, 1)" in capsys.readouterr().out
    assert resumed.run()
    assert resumed.scheme.storage.get_all_buffer_data()[DONE][10].all()


def test_a_run_extended_to_a_larger_target_equals_one_run_to_that_target(tmp_path: Path) -> None:
    first = prl.Learner(sac(2), 100, tmp_path / "first")
    first.run()
    resumed = prl.Learner.resume(first.log_dir, target_steps=160)
    resumed.run()
    whole = prl.Learner(sac(2), 160, tmp_path / "whole")
    whole.run()
    assert_equal(result_of(resumed)[0], result_of(whole)[0])

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


def priorities(memory: Any = None, n_step: int = 3, **settings: Any) -> Any:
    settings = {"alpha": 0.6, "beta": 0.4, "epsilon": 0.01, "sequences": SEQUENCES if memory else None} | settings
    return prl.PERBuffer.create_factory(**({"size": 60, "n_step": n_step} | settings))


def off_policy(
    algorithm: Any, storage: Any = None, env: Any = "CartPole-v1", num_envs: int = 2, **settings: Any
) -> Callable[[], prl.Scheme]:
    """A function that makes a scheme of small networks; settings of the actor and environments are taken by name."""
    actor = {name: settings.pop(name) for name in ACTOR if name in settings}
    envs = {name: settings.pop(name) for name in ENVS if name in settings}
    if env == "Pendulum-v1":
        envs["env_kwargs"] = {"max_episode_steps": 23}
    normalize_rewards = settings.pop("normalize_rewards", None)
    settings = {"start_steps": 24, "update_every": 6, "mini_batch_size": 8, "test_every": 0} | settings
    return lambda: prl.Scheme(
        algorithm.create_factory(**settings),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory_size=8, **actor),
        storage or priorities(actor.get("memory")),
        prl.VecEnv.create_factory(env, num_envs, **envs),
        normalize_rewards=normalize_rewards,
    )


ACTOR = ("memory", "noisy", "dueling", "normalize_observations", "body", "per_network", "feature_extractor")
ENVS = ("env_kwargs", "wrappers", "mode", "replay_on_resume")
EVALUATED = {"test_every": 70, "num_test_episodes": 2}


def dqn(storage: Any, **settings: Any) -> Callable[[], prl.Scheme]:
    return off_policy(prl.DQN, storage, **({"num_envs": 2, "update_every": 9} | EVALUATED | settings))


def with_noise(tensor: Any, generator: Any) -> Any:
    """Observations with a little noise."""
    return tensor + 0.01 * tensor.new_empty(tensor.shape).normal_(generator=generator)


def sac(num_envs: int, memory: Any = None) -> Callable[[], prl.Scheme]:
    storage = prl.ReplayBuffer.create_factory(size=60, sequences=SEQUENCES if memory else None)
    return off_policy(prl.SAC, storage, "Pendulum-v1", num_envs, memory=memory)


def qrdqn(**settings: Any) -> Callable[[], prl.Scheme]:
    return off_policy(prl.QRDQN, num_quantiles=5, polyak=0.0, target_update_interval=4, **EVALUATED, **settings)


def iqn(**settings: Any) -> Callable[[], prl.Scheme]:
    return off_policy(prl.IQN, noisy=True, num_quantiles=5, risk=prl.risk_measures.CVaR(0.5), **EVALUATED, **settings)


def r2d2(memory: Any) -> Callable[[], prl.Scheme]:
    sequences = prl.Sequences(6, burn_in=2, overlap=3)
    storage = priorities(n_step=5, alpha=0.9, beta=0.6, epsilon=1e-6, sequences=sequences)
    return off_policy(prl.R2D2, storage, num_envs=3, target_update_interval=4, memory=memory)


def dreamer(env: str = "CartPole-v1", sequences: Any = None, **settings: Any) -> Callable[[], prl.Scheme]:
    storage = priorities(n_step=1, alpha=0.9, sequences=sequences or prl.Sequences(8, across_episodes=True))
    sizes = {"num_latents": 3, "num_classes": 4, "num_bins": 21, "horizon": 4}
    return off_policy(prl.DreamerV3, storage, env, num_envs=3, memory="gru", **sizes, **settings)


def td3(policy_delay: int, **settings: Any) -> Callable[[], prl.Scheme]:
    return off_policy(
        prl.TD3, env="Pendulum-v1", lr_pi=prl.LinearSchedule(1e-3, 0.0), policy_delay=policy_delay, **settings
    )


def naf(**settings: Any) -> Callable[[], prl.Scheme]:
    settings |= {"polyak": 0.0, "target_update_interval": 4}
    return off_policy(prl.NAF, env="Pendulum-v1", dueling=True, noisy=True, **settings)


def sac_discrete(**settings: Any) -> Callable[[], prl.Scheme]:
    return off_policy(prl.SACDiscrete, target_entropy_share=prl.LinearSchedule(0.9, 0.1), **settings)


def sarsa(next_action: Any, **settings: Any) -> Callable[[], prl.Scheme]:
    return off_policy(prl.SARSA, next_action=next_action, epsilon=0.5, **settings)


def model_based(algorithm: Any, **settings: Any) -> Callable[[], prl.Scheme]:
    storage = prl.PERBuffer.create_factory(size=60)
    return off_policy(algorithm, storage, "Pendulum-v1", ensemble_size=2, normalize_observations=True, **settings)


def on_policy(
    algorithm: Any, storage: Any, env: str = "CartPole-v1", num_envs: int = 3, **settings: Any
) -> Callable[[], prl.Scheme]:
    """A function that makes a scheme of small networks; settings of the actor are taken by name."""
    actor = {name: settings.pop(name) for name in ("memory", "layer_norm") if name in settings}
    settings = {"test_every": 90, "num_test_episodes": 1} | settings
    return lambda: prl.Scheme(
        algorithm.create_factory(**settings),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory_size=8, **actor),
        storage,
        prl.VecEnv.create_factory(env, num_envs, env_kwargs={"max_episode_steps": 30}),
    )


FALLING = prl.LinearSchedule(1e-3, 0.0)


def ppo(num_envs: int, env: str = "CartPole-v1", **settings: Any) -> Callable[[], prl.Scheme]:
    settings |= {"lr": FALLING, "num_epochs": 2, "num_mini_batch": 1}
    return on_policy(prl.PPO, prl.GAEBuffer.create_factory(size=16), env, num_envs, **settings)


def rnd(**settings: Any) -> Callable[[], prl.Scheme]:
    settings |= {"lr": FALLING, "desired_kl": 1e-4, "num_features": 4, "num_epochs": 2, "num_mini_batch": 1}
    return on_policy(prl.RND, prl.GAEBuffer.create_factory(size=16), num_envs=2, **(settings | {"test_every": 0}))


def trpo(**settings: Any) -> Callable[[], prl.Scheme]:
    settings |= {"max_kl": prl.LinearSchedule(0.05, 0.0), "cg_iterations": 3, "backtracks": 3, "value_epochs": 2}
    return on_policy(prl.TRPO, prl.GAEBuffer.create_factory(size=16), "Pendulum-v1", 2, **settings)


def reinforce(**settings: Any) -> Callable[[], prl.Scheme]:
    settings |= {"lr": prl.LinearSchedule(1e-2, 0.0), "episodes_per_update": 4}
    return on_policy(prl.REINFORCE, prl.VanillaOnPolicyBuffer.create_factory(size=40), **settings)


def nstep_q_learning(**settings: Any) -> Callable[[], prl.Scheme]:
    settings |= {"lr": FALLING, "target_update_interval_steps": 50}
    return on_policy(prl.NStepQLearning, prl.VanillaOnPolicyBuffer.create_factory(size=5), **settings)


def pqn(**settings: Any) -> Callable[[], prl.Scheme]:
    settings |= {"num_epochs": 2, "num_mini_batch": 2, "layer_norm": True}
    return on_policy(prl.PQN, prl.LambdaReturnBuffer.create_factory(size=5), **settings)


def option_critic(**settings: Any) -> Callable[[], prl.Scheme]:
    return on_policy(prl.OptionCritic, prl.GAEBuffer.create_factory(size=5), lr=FALLING, **settings)


replay = prl.ReplayBuffer.create_factory(size=60)
replay_of_sequences = prl.ReplayBuffer.create_factory(size=60, sequences=SEQUENCES)
hindsight = prl.HERBuffer.create_factory(size=60)
SCHEMES: dict[str, Callable[[], prl.Scheme]] = {
    "DQN": dqn(replay, num_envs=1),
    "DQN in 4 environments": dqn(replay, num_envs=4),
    "DQN in 4 processes": dqn(replay, num_envs=4, mode="async"),
    "DQN with priorities and recency": dqn(PRIORITIES_AND_RECENCY),
    "DQN with a memory": dqn(replay_of_sequences, memory="lstm"),
    "DQN in hindsight": dqn(hindsight, env="pytorchrl/BitFlipping-v0", env_kwargs={"n": 5}),
    "DQN of stacked frames": dqn(replay, wrappers=[("FrameStackObservation", {"stack_size": 3})]),
    "DQN of normalised observations and rewards": dqn(
        replay, wrappers=["NormalizeReward"], normalize_observations=True
    ),
    "DQN of rewards normalised by the scheme": dqn(replay, normalize_rewards="returns"),
    "DQN with a rate limit": dqn(prl.ReplayBuffer.create_factory(size=60, rate_limit=prl.RateLimit(6.0, 30))),
    "DQN of a growing storage": dqn(priorities(size=None, n_step=2)),
    "DQN of a storage that grows to a number of bytes": dqn(priorities(size=None, max_bytes=8_000)),
    "DQN of transformed batches": dqn(priorities(transforms={OBS: with_noise})),
    "DQN with a memory and whole episodes": dqn(priorities(sequences=prl.Episodes()), memory="gru"),
    "DQN with a memory and packed episodes": dqn(
        prl.NStepReplayBuffer.create_factory(size=90, n_step=3, sequences=prl.Episodes(packed=True)), memory="lstm"
    ),
    "DQN with a memory and random pieces of episodes": dqn(
        priorities(sequences=prl.Episodes(max_steps=6)), memory=("lstm", "gru")
    ),
    "DQN with a memory and pieces by priority": dqn(
        priorities(size=90, sequences=prl.Episodes(longest=15, whole=False)), memory="gru"
    ),
    "SAC": sac(1),
    "SAC in 4 environments": sac(4),
    "SAC with a memory": sac(2, "gru"),
    "SAC of residual networks with weight decay": off_policy(
        prl.SAC,
        env="Pendulum-v1",
        body="simba",
        normalize_observations=True,
        per_network={"critics": {"body": "bronet", "hidden_sizes": (6, 6)}},
        optimizer=prl.AdamW(weight_decay=0.1),
    ),
    "QR-DQN with priorities and n steps": qrdqn(),
    "QR-DQN with a memory": qrdqn(memory="gru"),
    "Rainbow": off_policy(
        prl.Rainbow,
        priorities(alpha=0.5, beta=prl.LinearSchedule(0.4, 1.0), default_error="largest"),
        num_atoms=5,
        target_update_interval=4,
        dueling=True,
        noisy=True,
    ),
    "SPR of noisy layers with priorities and n steps": off_policy(
        prl.SPR,
        priorities(alpha=0.5, beta=prl.LinearSchedule(0.4, 1.0), sequences=prl.Sequences(4), n_step=3),
        num_atoms=5,
        target_update_interval=3,
        polyak=0.5,
        horizon=3,
        dueling=True,
        noisy=True,
    ),
    "BBF": off_policy(
        prl.BBF,
        priorities(alpha=0.5, sequences=prl.Sequences(4)),
        num_atoms=5,
        epsilon=prl.LinearSchedule(1.0, 0.1),
    ),
    "SAC with a memory of one's own": sac(2, MinimalGatedUnit),
    "R2D2": r2d2("lstm"),
    "R2D2 with stacked memories of one's own": r2d2(("lstm", WithTrace, LinearAfterGRU)),
    "DreamerV3": dreamer(update_every=9, **EVALUATED),
    "DreamerV3 with a burn-in": dreamer("Pendulum-v1", prl.Sequences(5, burn_in=4), normalize_observations=True),
    "IQN of noisy layers with priorities and n steps": iqn(),
    "IQN with a memory": iqn(memory="gru"),
    "SARSA with priorities and n steps": sarsa("taken"),
    "SARSA with actions chosen anew and a memory": sarsa("policy", memory="gru"),
    "PQN": pqn(),
    "PQN with a memory": pqn(memory="lstm"),
    "OptionCritic": option_critic(),
    "OptionCritic with a memory": option_critic(memory="gru"),
    "PQN with Q(lambda)": on_policy(
        prl.PQN,
        prl.LambdaReturnBuffer.create_factory(size=8, trace_lambda=0.6),
        explorer=prl.EpsilonGreedy(0.1),
        num_mini_batch=2,
    ),
    "PPO with lambda returns and a memory": on_policy(
        prl.PPO, prl.LambdaReturnBuffer.create_factory(size=8), num_mini_batch=2, memory="gru", num_envs=2
    ),
    "PPO without a discount": on_policy(
        prl.PPO, prl.AverageRewardBuffer.create_factory(size=8, average_step_size=0.2), num_mini_batch=2
    ),
    "A2C without a discount and with a memory": on_policy(
        prl.A2C, prl.AverageRewardBuffer.create_factory(size=8), memory="gru"
    ),
    "OptionCritic with lambda returns": on_policy(
        prl.OptionCritic, prl.LambdaReturnBuffer.create_factory(size=8), num_mini_batch=2
    ),
    "n-step Q-learning": nstep_q_learning(),
    "n-step Q-learning with a memory": nstep_q_learning(memory="lstm"),
    "TD3 with priorities and n steps": td3(2),
    "MRQ of sequences, stopped between phases of its encoders": off_policy(
        prl.MRQ,
        prl.PERBuffer.create_factory(size=60, alpha=0.4, sequences=prl.Sequences(5)),
        "Pendulum-v1",
        target_update_interval=4,
        action_features=4,
        num_bins=9,
    ),
    "DrQV2 of shifted frames, with priorities and n steps": off_policy(
        prl.DrQV2,
        priorities(transforms={OBS: prl.RandomShift(2, interpolate=True)}),
        "pytorchrl/PixelPendulum-v0",
        env_kwargs={"size": 36, "max_episode_steps": 22},
        feature_extractor="nature_convolutions",
        feature_size=5,
        **EVALUATED,
    ),
    "TD3 with a memory, stopped in the middle of its delay": td3(4, memory="lstm"),
    "NAF with priorities and n steps": naf(),
    "NAF with a memory": naf(memory="gru"),
    "SACDiscrete with priorities and n steps": sac_discrete(),
    "SACDiscrete with a memory": sac_discrete(memory="lstm"),
    "PETS with priorities": model_based(
        prl.PETS,
        planner=prl.planners.CrossEntropy(3, num_iterations=2, num_samples=6, num_elites=2),
        max_grad_norm=1.0,
        test_every=90,
        num_test_episodes=1,
    ),
    "MBPO with priorities": model_based(prl.MBPO, rollout_length=prl.LinearSchedule(1, 3), num_mini_batch=2),
    "PPO": ppo(1),
    "PPO in 4 environments": ppo(4, "Pendulum-v1"),
    "PPO with a memory": ppo(4, memory="gru"),
    "PPO with a memory and layers after it": ppo(4, memory=LinearAfterGRU),
    "PPO with a memory of one's own": ppo(4, memory=FastWeights),
    "RND": rnd(),
    "RND with a memory": rnd(memory="gru"),
    "TRPO": trpo(),
    "TRPO with a memory": trpo(memory="lstm"),
    "REINFORCE, stopped between the episodes of an update": reinforce(),
    "REINFORCE with a memory": reinforce(memory="gru"),
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


SLOW = (
    "NAF",
    "DreamerV3 with",
    "RND",
    "SACDiscrete",
    "R2D2",
    "memory",
    "processes",
    "frames",
    "normalised",
    "hindsight",
    "recency",
)


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
        return dqn(storage, env=lambda: next(made)())()

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
    learner = prl.Learner(dqn(replay, replay_on_resume=False)(), 60, tmp_path / "run")
    resumed = prl.Learner.resume(stopped(learner, 20, monkeypatch))
    assert "2 of 2 environments could not be restored (number 0, 1)" in capsys.readouterr().out
    assert resumed.run()
    assert resumed.scheme.storage.get_all_buffer_data()[DONE][10].all()


def test_a_run_extended_to_a_larger_target_equals_one_run_to_that_target(tmp_path: Path) -> None:
    first = prl.Learner(sac(2)(), 100, tmp_path / "first")
    first.run()
    resumed = prl.Learner.resume(first.log_dir, target_steps=160)
    resumed.run()
    whole = prl.Learner(sac(2)(), 160, tmp_path / "whole")
    whole.run()
    assert_equal(result_of(resumed)[0], result_of(whole)[0])

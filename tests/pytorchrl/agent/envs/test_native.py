"""Native vector environments: the same transitions in each of gymnasium's autoreset modes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

import pytorchrl as prl
from pytorchrl.experiments import collect_demonstrations
from pytorchrl.experiments.recordings.filming import stage_of
from storages.datasets import open_dataset
from storages.transition import DONE, DONE2, OBS, OBS2, REW, SKIPPED, TRUNC2
from tests.support.clocks import Clocks, RememberedClocks
from tests.support.toys import Counter

MODES = list(AutoresetMode)
KINDS = ["array", "tensor", "same array", "double", "dict"]


def clocks(num_envs: int = 3, **settings: Any) -> prl.VecEnv:
    return prl.VecEnv.create_factory(Clocks, num_envs, env_kwargs=settings)()


def as_numpy(observation: Any) -> Any:
    if isinstance(observation, torch.Tensor):
        return observation.numpy().copy()
    return np.array(observation["clock"] if isinstance(observation, dict) else observation)


def transitions(envs: prl.VecEnv, steps: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield the index of the environment and the transition, for each transition."""
    seen = as_numpy(envs.reset(seed=0))
    random = np.random.default_rng(0)
    drawn = [iter(random.integers(0, 3, 1000)) for _ in range(envs.num_envs)]
    for _ in range(steps):
        # The action of a step without a transition is ignored.
        skipped = np.zeros(envs.num_envs, bool) if envs.skips_next is None else envs.skips_next
        actions = np.array([[0 if skipped[env] else next(drawn[env])] for env in range(envs.num_envs)])
        step = envs.step(torch.from_numpy(actions) if envs.takes_tensors else actions)
        made = np.ones((envs.num_envs, 1), bool) if step.made is None else step.made
        following = as_numpy(step.next_observation)
        assert step.reward.shape == step.terminated.shape == step.truncated.shape == made.shape == (envs.num_envs, 1)
        for env in np.flatnonzero(made):
            ends = step.terminated[env, 0], step.truncated[env, 0]
            yield int(env), (*seen[env].tolist(), *following[env].tolist(), step.reward[env, 0], *ends)
        seen = as_numpy(step.observation)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["terminated", "truncated"])
@pytest.mark.parametrize("mode", MODES)
def test_every_autoreset_mode_makes_the_same_transitions(mode: AutoresetMode, end: str, kind: str) -> None:
    expected: list[list[Any]] = [[], [], []]
    for env, one in transitions(clocks(mode=AutoresetMode.SAME_STEP, end=end), 40):
        expected[env].append(one)
    got: list[list[Any]] = [[], [], []]
    for env, one in transitions(clocks(mode=mode, end=end, kind=kind), 40):
        got[env].append(one)
    assert [len(of) for of in got] == ([40] * 3 if mode is not AutoresetMode.NEXT_STEP else [27, 30, 32])
    for mine, other in zip(got, expected, strict=True):
        assert mine == other[: len(mine)]


@pytest.mark.parametrize("mode", MODES)
def test_no_transition_spans_two_episodes(mode: AutoresetMode) -> None:
    for _, (episode, time, next_episode, next_time, *_) in transitions(clocks(mode=mode), 40):
        assert (next_episode, next_time) == (episode, time + 1)


@pytest.mark.parametrize("mode", MODES)
def test_returns_lengths_and_reported_infos_cover_whole_episodes(mode: AutoresetMode) -> None:
    envs = clocks(2, mode=mode)
    envs.reset(seed=0)
    found: list[tuple[Any, ...]] = []
    for _ in range(6):
        envs.step(np.ones((2, 1), np.int64))
        found += [(one.environment, round(one.episode_return, 2), one.length) for one in envs.finished_episodes]
        assert all(one.reported == {"is_success": one.length % 2 == 0} for one in envs.finished_episodes)
    two, three = (0, 3.02, 2), (1, 6.03, 3)
    skips = mode is AutoresetMode.NEXT_STEP
    assert found == ([two, three, two] if skips else [two, three, two, two, three])
    running = [(one.environment, one.length) for one in envs.running_episodes()]
    assert running == ([(0, 0), (1, 2)] if skips else [(0, 0), (1, 0)])


def test_observations_that_the_dtype_of_their_space_would_cut_are_refused() -> None:
    class Bytes(Clocks):
        def __init__(self, num_envs: int) -> None:
            super().__init__(num_envs)
            self.single_observation_space = gym.spaces.Box(0, 255, (2,), np.uint8)

    with pytest.raises(prl.InvalidEnvironmentError, match=r"reset\(\) of Bytes.* float32, .* would cut to uint8"):
        prl.VecEnv(Bytes, 2).reset(0)


def test_successes_that_are_numpys_booleans_are_reported() -> None:
    class Succeeds(Counter):
        def step(self, action: Any) -> Any:
            *result, _ = super().step(action)
            return *result, {"is_success": np.bool_(True)}

    def several(num_envs: int) -> gym.vector.SyncVectorEnv:
        return gym.vector.SyncVectorEnv([Succeeds] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)

    with prl.VecEnv(several, 2) as envs:
        envs.reset(0)
        for _ in range(3):
            envs.step(np.zeros((2, 1), np.int64))
        assert [episode.reported for episode in envs.finished_episodes] == [{"is_success": 1.0}] * 2


def test_vector_environments_without_final_observations_are_refused() -> None:
    envs = clocks(2, mode=AutoresetMode.SAME_STEP, says_final=False)
    envs.reset(seed=0)
    envs.step(np.zeros((2, 1), np.int64))
    with pytest.raises(prl.InvalidEnvironmentError, match=r"no 'final_obs'.*NEXT_STEP or DISABLED"):
        envs.step(np.zeros((2, 1), np.int64))


def test_vector_environments_that_break_the_interface_are_refused() -> None:
    class Few(Clocks):
        def step(self, actions: Any) -> Any:
            observation, reward, *rest = super().step(actions)
            return observation, reward[:1], *rest

    class Modeless(Clocks):
        def __init__(self, num_envs: int) -> None:
            super().__init__(num_envs)
            self.metadata = {}

    envs = prl.VecEnv(Few, 2)
    envs.reset(0)
    with pytest.raises(prl.InvalidEnvironmentError, match=r"rewards of float64\(1,\); they must be numbers of shape"):
        envs.step(np.zeros((2, 1), np.int64))
    with pytest.raises(prl.InvalidEnvironmentError, match="autoreset_mode"):
        prl.VecEnv(Modeless, 2)
    with pytest.raises(prl.InvalidEnvironmentError, match="has 3 environments, and num_envs is 2"):
        prl.VecEnv(lambda num_envs: Clocks(3), 2)
    with pytest.raises(prl.InvalidEnvironmentError, match=r"no gymnasium\.vector\.VectorEnv"):
        prl.VecEnv(lambda num_envs: gym.make("CartPole-v1"), 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"env": "Pendulum-v1", "vectorization_mode": "vector_entry_point"}, "no vector_entry_point"),
        ({"env": "CartPole-v1", "vectorization_mode": "vector_entry_point", "mode": "async"}, "leave out mode"),
        ({"env": "Nothing-v0", "backend": "envpool"}, "envpool has no 'Nothing-v0'"),
        ({"env": "CartPole-v1", "backend": "ale"}, "no game of Atari"),
        ({"env": Clocks, "backend": "envpool"}, "needs an id"),
        ({"env": Clocks, "wrappers": ["FlattenObservations"]}, r"gymnasium\.wrappers\.vector has no"),
        ({"env": Clocks, "wrappers": ["NormalizeObservation"]}, "normalize_observations=True"),
    ],
)
def test_incompatible_settings_are_refused_when_the_factory_is_created(settings: dict[str, Any], message: str) -> None:
    if settings.get("backend") == "envpool":
        pytest.importorskip("envpool")
    if settings.get("backend") == "ale":
        pytest.importorskip("ale_py")
    with pytest.raises(ValueError, match=message):
        prl.VecEnv.create_factory(num_envs=2, **settings)


def test_vector_wrappers_change_rewards_but_not_reported_returns() -> None:
    clip = ("ClipReward", {"max_reward": 1.0})
    envs = prl.VecEnv.create_factory(Clocks, 2, wrappers=[clip], env_kwargs={"mode": AutoresetMode.DISABLED})()
    envs.reset(seed=0)
    envs.step(np.zeros((2, 1), np.int64))
    assert envs.step(np.zeros((2, 1), np.int64)).reward[:, 0].tolist() == [1, 1]
    assert [one.episode_return for one in envs.finished_episodes] == [3.0]


def scheme_of(envs: Any, seed: int = 0, size: int = 16, **settings: Any) -> prl.Scheme:
    return prl.Scheme(
        algo_factory=prl.PPO.create_factory(num_epochs=1, num_mini_batch=2, test_every=0),
        actor_factory=prl.OnPolicyActor.create_factory(hidden_sizes=(8,), **settings),
        storage_factory=prl.GAEBuffer.create_factory(size=size),
        train_envs_factory=envs,
        seed=seed,
    )


@pytest.mark.parametrize("memory", [None, "gru"])
def test_skipped_steps_of_a_rollout_are_not_learnt_from(memory: Any) -> None:
    scheme = scheme_of(prl.VecEnv.create_factory(Clocks, 3), memory=memory)
    scheme.collect(10**9)
    storage = scheme.storage
    fields = storage.get_all_buffer_data()
    skipped = fields[SKIPPED][..., 0] > 0
    assert skipped.sum() == 5 + 4 + 3
    assert scheme.steps == 3 * 16 - int(skipped.sum())
    assert (fields[REW][skipped] == 0).all()
    storage.before_gradients()
    learnt = 0
    for batch in storage.generate_batches(1):
        real = batch[SKIPPED] == 0 if memory is None else (batch[SKIPPED] == 0) == (batch["Mask"] > 0)
        assert real.all()
        keep = (batch[SKIPPED] == 0)[..., 0]
        learnt += int(keep.sum())
        assert (batch[OBS2][keep][:, 1] == batch[OBS][keep][:, 1] + 1).all()
        assert (batch[REW][keep][:, 0] >= 1).all()
    assert learnt == scheme.steps
    scheme.close()


def test_skipped_steps_do_not_change_advantages() -> None:
    random = np.random.default_rng(0)
    lengths, rows, skips = [3, 2, 4], [], []
    for episode, length in enumerate(lengths):
        for step in range(length):
            seen = [np.array([[episode, step + later]], np.float32) for later in (0, 1)]
            ends = {DONE2: step == length - 1 and episode != 1, TRUNC2: step == length - 1 and episode == 1}
            flags = {DONE: step == 0, **ends, SKIPPED: False}
            rows.append({OBS: seen[0], OBS2: seen[1], REW: random.random((1, 1), np.float32)} | flags)
            skips.append(False)
        last, first = rows[-1][OBS2], np.array([[episode + 1, 0]], np.float32)
        flags = {DONE: True, DONE2: False, TRUNC2: True, SKIPPED: True}
        rows.append({OBS: last, OBS2: first, REW: np.zeros((1, 1), np.float32)} | flags)
        skips.append(True)

    class Values:
        def value(self, obs: Any, rhs: Any, done: Any) -> torch.Tensor:
            return obs.sum(-1, keepdim=True)

    def advantages(kept: list[Any], with_flag: bool) -> Any:
        settings = prl.GAEBuffer.create_factory(len(kept), gae_lambda=0.9)
        storage = settings("cpu", Values(), type("Discount", (), {"gamma": 0.9}), type("One", (), {"num_envs": 1}))
        for row in kept:
            sample = {name: np.full((1, 1), value) if np.ndim(value) == 0 else value for name, value in row.items()}
            sample |= {"Action": np.zeros((1, 1)), "Value": row[OBS].sum(-1, keepdims=True)}
            storage.insert_transition(sample if with_flag else {k: v for k, v in sample.items() if k != SKIPPED})
        storage.before_gradients()
        storage.seed(0)
        (batch,) = storage.generate_batches(1)
        order = np.lexsort(batch[OBS].numpy().T[::-1])
        return batch["Advantage"].numpy()[order]

    without = [row for row, skip in zip(rows, skips, strict=True) if not skip]
    np.testing.assert_array_equal(advantages(rows, True), advantages(without, False))


def test_skipped_steps_enter_no_statistics_of_observations_and_rewards() -> None:
    envs = prl.VecEnv.create_factory(Clocks, 2)
    scheme = prl.Scheme(
        algo_factory=prl.PPO.create_factory(num_mini_batch=1, test_every=0),
        actor_factory=prl.OnPolicyActor.create_factory(hidden_sizes=(8,), normalize_observations=True),
        storage_factory=prl.GAEBuffer.create_factory(size=16),
        train_envs_factory=envs,
        normalize_rewards="rewards",
    )
    scheme.collect(10**9)
    counted = scheme.actor.state_dict()
    assert {int(value) for name, value in counted.items() if name.endswith("count")} == {scheme.steps}
    assert scheme.state_dict()["collector"]["rewards"]["count"] == scheme.steps
    scheme.close()


def replay_scheme(storage: prl.Factory[Any], num_envs: int = 3, **settings: Any) -> prl.Scheme:
    return prl.Scheme(
        prl.DQN.create_factory(start_steps=10, update_every=5, mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        storage,
        prl.VecEnv.create_factory(Clocks, num_envs, env_kwargs=settings),
    )


@pytest.mark.parametrize("end", ["terminated", "truncated"])
@pytest.mark.parametrize("mode", MODES)
def test_replay_buffers_hold_the_same_transitions_in_every_mode(mode: AutoresetMode, end: str) -> None:
    scheme, expected = (
        replay_scheme(prl.ReplayBuffer.create_factory(300), mode=one, end=end)
        for one in (mode, AutoresetMode.SAME_STEP)
    )
    for one in (scheme, expected):
        for _ in range(60):
            one.collector.step()
    held, wanted = (one.storage.get_all_buffer_data() for one in (scheme, expected))
    steps = 60 if mode is not AutoresetMode.NEXT_STEP else 60 - 60 // 3
    assert held[OBS].shape == (steps, 3, 2)
    for name in (OBS, OBS2, DONE, DONE2, TRUNC2):
        assert torch.equal(held[name], wanted[name][:steps]), name
    assert SKIPPED not in held
    waiting = 0 if mode is not AutoresetMode.NEXT_STEP else (60 - 60 // 4 - steps) + (60 - 60 // 5 - steps)
    assert scheme.steps == len(scheme.storage) + waiting
    for one in (scheme, expected):
        one.close()


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("mode", MODES)
def test_replay_batches_contain_no_skipped_steps(mode: AutoresetMode, tmp_path: Path) -> None:
    scheme = replay_scheme(prl.PERBuffer.create_factory(size=100, n_step=2, alpha=0.5), mode=mode)
    learner = prl.Learner(scheme, 600, log_dir=tmp_path)
    assert learner.run()
    newest = scheme.storage.get_all_buffer_data()[OBS][-1]
    for batch in scheme.storage.generate_batches(20, 16):
        apart = batch[OBS2][:, 1] - batch[OBS][:, 1]
        assert (batch[OBS2][:, 0] == batch[OBS][:, 0]).all()
        is_newest = (batch[OBS][:, None] == newest).all(2).any(1)
        assert ((apart == 2) | ((apart == 1) & ((batch[DONE2][:, 0] == 1) | is_newest))).all()
    learner.close()


def test_an_environment_too_far_ahead_is_left_out_until_the_others_catch_up() -> None:
    # The first environment makes transitions in 2 of 3 steps, the last in 6 of 7.
    scheme = replay_scheme(prl.ReplayBuffer.create_factory(10), num_envs=5, end="truncated")
    for _ in range(400):
        scheme.collector.step()
    storage, lengths = scheme.storage, 2 + np.arange(5)
    held = storage.get_all_buffer_data()
    assert held[OBS].shape == (10, 5, 2)
    joined = held[TRUNC2][:-1, :, 0] == 0
    assert torch.equal(held[OBS2][:-1][joined], held[OBS][1:][joined])
    assert (held[OBS2][..., 1] == held[OBS][..., 1] + 1).all()
    assert (held[OBS][..., 1] < torch.from_numpy(lengths)).all()
    assert (held[OBS][-1, :, 0] > 400 / (lengths.max() + 1) - 4).all(), "every environment continues"
    scheme.close()


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_a_storage_of_episodes_holds_the_episodes_of_every_autoreset_mode(end: str, tmp_path: Path) -> None:
    held = {}
    for mode in MODES:
        factory = prl.PersistentEpisodicBuffer.create_factory(300, directory=tmp_path / mode.name)
        scheme = replay_scheme(factory, mode=mode, end=end)
        for _ in range(60 if mode is AutoresetMode.NEXT_STEP else 40):
            scheme.collector.step()
        held[mode] = sorted(
            (episode.observations.tolist(), episode.terminated, episode.truncated)
            for episode in scheme.storage.episodes()
        )
        scheme.close()
    # Of 60 steps, the first environment makes 40 transitions; the others are as far once it has delivered them.
    assert held[AutoresetMode.NEXT_STEP] == held[AutoresetMode.SAME_STEP] == held[AutoresetMode.DISABLED]
    assert len(held[AutoresetMode.SAME_STEP]) == 20 + 13 + 10


def trained_weights(learner: prl.Learner) -> Any:
    while not learner.done():
        learner.step()
    weights = learner.scheme.algorithm.get_weights()
    learner.close()
    return weights


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("mode", MODES)
def test_environments_with_a_state_dict_resume_exactly(tmp_path: Path, mode: AutoresetMode) -> None:
    envs = prl.VecEnv.create_factory(RememberedClocks, 3, env_kwargs={"mode": mode})
    whole = trained_weights(prl.Learner(scheme_of(envs), 400, log_dir=tmp_path / "whole"))
    halted = prl.Learner(scheme_of(envs), 400, log_dir=tmp_path / "halted")
    for _ in range(3):
        halted.step()
    halted.save_checkpoint()
    halted.close()
    resumed = trained_weights(prl.Learner.resume(tmp_path / "halted", scheme=scheme_of(envs)))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("directory", [None, "replay"])
def test_transitions_waiting_for_other_environments_are_resumed(tmp_path: Path, directory: str | None) -> None:
    def composed(run: str) -> prl.Scheme:
        return prl.Scheme(
            prl.DQN.create_factory(start_steps=10, update_every=5, mini_batch_size=8, test_every=0),
            prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
            prl.PERBuffer.create_factory(50, n_step=2, directory=directory and tmp_path / run / directory),
            prl.VecEnv.create_factory(RememberedClocks, 3),
            seed=0,
        )

    whole = trained_weights(prl.Learner(composed("whole"), 400, log_dir=tmp_path / "whole"))
    halted = prl.Learner(composed("halted"), 400, log_dir=tmp_path / "halted")
    while halted.scheme.steps < 200:
        halted.step()
    assert halted.scheme.steps > halted.scheme.storage.ring.steps * 3, "some transitions wait"
    halted.save_checkpoint()
    halted.close()
    resumed = trained_weights(prl.Learner.resume(tmp_path / "halted", scheme=composed("halted")))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_environments_without_a_state_dict_start_new_episodes_with_one_notice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    envs = prl.VecEnv.create_factory(Clocks, 3)
    halted = prl.Learner(scheme_of(envs), 400, log_dir=tmp_path / "run")
    halted.step()
    halted.save_checkpoint()
    halted.close()
    capsys.readouterr()
    resumed = prl.Learner.resume(tmp_path / "run", scheme=scheme_of(envs))
    assert capsys.readouterr().out.count("new ones begin") == 1
    trained_weights(resumed)
    assert resumed.scheme.steps >= 400


@pytest.mark.parametrize("kind", ["array", "tensor"])
@pytest.mark.parametrize("mode", MODES)
def test_recorded_episodes_are_complete_in_every_mode(tmp_path: Path, mode: AutoresetMode, kind: str) -> None:
    envs = prl.VecEnv.create_factory(Clocks, 3, env_kwargs={"mode": mode, "kind": kind})
    collect_demonstrations(lambda seen: np.ones((3, 1), np.int64), envs, path=tmp_path / "data.npz", episodes=7)
    lengths = []
    for episode in open_dataset(tmp_path / "data.npz"):
        assert episode.terminated
        assert episode.observations[:, 1].tolist() == list(range(len(episode) + 1))
        lengths.append(len(episode))
    assert sorted(lengths) == [2, 2, 3, 3, 4, 4, 4]


def test_a_video_needs_a_single_environment() -> None:
    stage = stage_of(prl.VecEnv.create_factory(Clocks, 3), "rgb_array")
    with pytest.raises(ValueError, match=r"steps many environments at once.*test_envs_factory"), stage:
        pass


@pytest.mark.parametrize("networks", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("mode", MODES)
def test_a_run_learns_from_environments_on_any_device(mode: AutoresetMode, device: str, networks: str) -> None:
    envs = prl.VecEnv.create_factory(Clocks, 3, env_kwargs={"mode": mode, "kind": "tensor", "device": device})
    scheme = prl.Scheme(
        prl.PPO.create_factory(num_epochs=1, num_mini_batch=2, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), normalize_observations=True),
        prl.GAEBuffer.create_factory(size=16),
        envs,
        device=networks,
    )
    for _ in range(2):
        scheme.collect(10**9)
        assert all(torch.isfinite(info["value_loss"]).all() for info in scheme.update())
    assert scheme.evaluate(2).lengths == (2, 2)
    made: Any = scheme.envs._vector._made  # type: ignore[union-attr, attr-defined]
    assert {given.device.type for given in made.given} == {device}
    state = scheme.state_dict()
    scheme.load_state_dict(state)
    scheme.collect(10**9)
    scheme.close()

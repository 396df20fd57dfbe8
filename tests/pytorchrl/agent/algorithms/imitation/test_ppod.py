"""PPO+D learns from demonstrations and from its own best episodes in addition to the rollouts of its policy."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.algorithms.imitation.replayed_episodes import ReplayedEpisodes, WholeEpisodes
from storages.datasets import open_dataset
from storages.episode import Episode
from storages.transition import ACT, ADV, DONE, DONE2, LOGP, OBS, OBS2, RET, REW, SKIPPED, TRUNC2, VAL
from tests.support.by_hand import envs_with, layer_of, linear, numeric_gradient, numpy, perturb
from tests.support.data_sets import recorded
from tests.support.rollout_batches import rollout_batch
from tests.support.training import train


def ppod(
    data: Path, memory: Any = None, size: int = 8, repeated: int = 8, mode: Any = None, **settings: Any
) -> prl.Scheme:
    window = {"sequences": prl.Sequences(4)} if memory else {}
    length = {"sequence_length": 4} if memory else {}
    algorithm = {"num_mini_batch": 2, "num_epochs": 2, "test_every": 48, "num_test_episodes": 1}
    return prl.Scheme(
        prl.PPOD.create_factory(**(algorithm | settings)),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=4),
        prl.GAEBuffer.create_factory(size=size, gae_lambda=0.9, **length),
        prl.VecEnv.create_factory("CartPole-v1", num_envs=3, vectorization_mode=mode),
        sources={
            "demonstrations": prl.from_dataset(prl.ReplayBuffer.create_factory(size=80, **window), data),
            "repeated": prl.GAEBuffer.create_factory(size=repeated, gae_lambda=0.9, **length),
        },
        seed=1,
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return recorded(tmp_path / "shown.npz")


def run_update_phase(scheme: prl.Scheme, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[Any], list[Any]]:
    """Run an update phase; return the repeated rollout, the batches and the metrics."""
    held: dict[str, Any] = {}
    batches: list[Any] = []
    update, repeated = scheme.algorithm.update, scheme.storages["repeated"]

    def recording(batch: Any) -> Any:
        held.update(repeated.get_all_buffer_data())
        batches.append(batch)
        return update(batch)

    scheme.collect(10_000)
    monkeypatch.setattr(scheme.algorithm, "update", recording)
    metrics = list(scheme.update())
    monkeypatch.setattr(scheme.algorithm, "update", update)
    return held, batches, metrics


# The repeated rollout


@pytest.mark.parametrize("repeated_as", ["certain", "policy"])
def test_a_repeated_rollout_holds_demonstrations_with_the_present_values(
    repeated_as: Any, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With a share of 0.4, two columns of 8 steps are added to those of three environments.
    scheme = ppod(data, phi=0.3, repeated_as=repeated_as, lr=0.0)
    algorithm: Any = scheme.algorithm
    held, _, _ = run_update_phase(scheme, monkeypatch)
    assert held[REW].shape == (8, 2, 1)
    shown = list(open_dataset(data))
    with torch.no_grad():
        value = algorithm.value(algorithm.actor.view(held[OBS].flatten(0, 1))).view(8, 2, 1)
        policy = algorithm.pi(algorithm.actor.view(held[OBS].flatten(0, 1)))
        log_prob = policy.log_prob(held[ACT].flatten(0, 1)).view(8, 2, 1)
        after = algorithm.value(algorithm.actor.view(held[OBS2][-1]))
    torch.testing.assert_close(held[VAL], value)
    torch.testing.assert_close(held[LOGP], log_prob if repeated_as == "policy" else torch.zeros(8, 2, 1))
    for column in range(2):
        seen = held[OBS][:, column].numpy()
        (episode,) = [one for one in shown if (np.asarray(one.observations)[:8] == seen).all()]
        np.testing.assert_array_equal(held[OBS2][:, column], np.asarray(episode.observations)[1:9])
        for key in (ACT, REW):
            np.testing.assert_array_equal(held[key][:, column], episode.fields[key][:8])
    assert held[DONE][0].all()
    assert not held[DONE][1:].any()
    # Generalized advantage estimates by hand: no episode ends within 8 steps.
    value, following = numpy(value), np.concatenate([numpy(value)[1:], numpy(after)[None]])
    advantage = numpy(held[REW]) + 0.99 * following - value
    for step in reversed(range(7)):
        advantage[step] += 0.99 * 0.9 * advantage[step + 1]
    np.testing.assert_allclose(numpy(held[ADV]), advantage, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(numpy(held[RET]), advantage + value, rtol=1e-4, atol=1e-5)


def test_a_demonstration_continues_in_the_next_update_and_ends_as_it_was_recorded(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme = ppod(data, phi=0.0, rho=0.2)
    parts = [run_update_phase(scheme, monkeypatch)[0] for _ in range(5)]
    seen, done, cut = (torch.cat([part[key][:, 0] for part in parts]).numpy() for key in (OBS, DONE, TRUNC2))
    shown = [np.asarray(episode.observations) for episode in open_dataset(data)]
    begins = np.flatnonzero(done)
    np.testing.assert_array_equal(begins, [0, 20])
    for begin in begins:
        assert any((seen[begin : begin + 20] == one[:20]).all() for one in shown)
    np.testing.assert_array_equal(np.flatnonzero(cut), [19, 39])
    assert not torch.cat([part[DONE2] for part in parts]).any()


def test_every_epoch_uses_each_row_once_and_every_batch_rows_of_both_rollouts(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme = ppod(data)
    held, batches, metrics = run_update_phase(scheme, monkeypatch)
    repeated, *of_batches = (Counter(map(tuple, part[OBS].view(-1, 4).tolist())) for part in (held, *batches))
    assert [each.total() for each in of_batches] == [20] * 4
    assert all(0 < sum(each[row] for row in repeated) < 20 for each in of_batches)
    for first, second in (of_batches[:2], of_batches[2:]):
        assert repeated <= first + second
        assert list((first + second - repeated).values()) == [1] * 24
    assert metrics[-1]["rewarded_episodes"] >= 3
    assert len(scheme.storages["repeated"]) == 0


# The update


def test_an_update_equals_the_one_computed_by_hand() -> None:
    envs = envs_with(spaces.Discrete(3))
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=())("cpu", envs)
    settings: dict[str, Any] = {"entropy_coef": 0.1, "max_grad_norm": None, "clip_param": 0.2}
    algorithm = prl.PPOD.create_factory(**settings)("cpu", actor, envs)
    perturb(actor, 1, 0.5)
    own, repeated = rollout_batch(algorithm, 6), rollout_batch(algorithm, 4, seed=3)
    repeated[LOGP] = torch.zeros(4, 1)
    batch = {key: torch.cat([own[key], repeated[key]]) for key in own}
    # The probabilities of the policy's own actions have moved since.
    batch[LOGP] = batch[LOGP] + torch.tensor([0.3, -0.3, 0.0, 0.1, -0.4, 0.2, 0, 0, 0, 0])[:, None]
    layers = {"0": layer_of(algorithm.pi.head), "1": layer_of(algorithm.value.head)}
    obs, action = numpy(batch[OBS]), numpy(batch[ACT])[:, 0].astype(int)
    before, returns, advantage = (numpy(batch[key])[:, 0] for key in (LOGP, RET, ADV))
    advantage = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-8)

    def loss() -> Any:
        scores = linear(layers["0"], obs)
        log_probs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
        total = 0.0
        for row in range(10):
            ratio = np.exp(log_probs[row, action[row]] - before[row])
            gain = min(ratio * advantage[row], np.clip(ratio, 0.8, 1.2) * advantage[row])
            error = linear(layers["1"], obs[row : row + 1])[0, 0] - returns[row]
            entropy = -(np.exp(log_probs[row]) * log_probs[row]).sum()
            total += -gain + 0.5 * 0.5 * error**2 - 0.1 * entropy
        return total / 10

    gradients, _ = algorithm.compute_gradients(batch)
    for number, layer in layers.items():
        for name, parameter in zip(("weight", "bias"), layer, strict=True):
            by_hand = numeric_gradient(loss, parameter)
            found = numpy(gradients[f"policy_and_value.{number}.head.layer.{name}"])
            np.testing.assert_allclose(found, by_hand, rtol=1e-3, atol=1e-5)


# Which episodes are kept and drawn


def episode(reward: float, steps: int = 4) -> Episode:
    rewards = np.zeros((steps, 1), np.float32)
    rewards[-1] = reward
    fields = {ACT: np.zeros((steps, 1), np.int64), REW: rewards, VAL: np.zeros((steps, 1), np.float32)}
    return Episode(np.zeros((steps + 1, 3), np.float32), fields, terminated=True, truncated=False)


def kept(capacity: int = 4, alpha: float = 2.0) -> ReplayedEpisodes:
    return ReplayedEpisodes([episode(2.0), episode(3.0)], capacity, 0.1, 0.3, alpha)


def test_episodes_as_good_as_a_demonstration_are_rewarded_and_others_valued() -> None:
    episodes = kept()
    episodes.add(episode(1.9), 5.0)
    episodes.add(episode(2.0), 0.0)
    assert [len(episodes.rewarded), len(episodes.valued)] == [3, 1]


def test_each_new_rewarded_episode_moves_a_part_of_phi_to_rho() -> None:
    episodes = kept()
    episodes.add(episode(2.0), 0.0)
    assert (episodes.rho, episodes.phi) == (0.1, 0.3)  # there were no valued episodes to take it from
    for value in (1.0, 2.0):
        episodes.add(episode(0.0), value)
    episodes.add(episode(2.0), 0.0)
    np.testing.assert_allclose([episodes.rho, episodes.phi], [0.1 + 0.3 / 2, 0.3 - 0.3 / 2])
    for _ in range(5):
        episodes.add(episode(2.0), 0.0)
    np.testing.assert_allclose([episodes.rho, episodes.phi], [0.4, 0.0], atol=1e-12)


def test_the_least_valued_are_dropped_first_and_demonstrations_never() -> None:
    episodes = kept(capacity=3)
    for value in (5.0, 1.0, 3.0, 4.0):
        episodes.add(episode(0.0), value)
    assert [one.value for one in episodes.valued] == [5.0, 3.0, 4.0]
    for _ in range(3):
        episodes.add(episode(2.0), 0.0)
    assert not episodes.valued
    newest = [one.number for one in episodes.rewarded]
    episodes.add(episode(2.0), 0.0)
    assert [one.number for one in episodes.rewarded] == [0, 1, *newest[3:], newest[-1] + 1]


def test_valued_episodes_are_drawn_in_proportion_to_a_power_of_their_value() -> None:
    episodes = kept(alpha=2.0)
    for value in (-1.0, 1.0, 3.0):
        episodes.add(episode(0.0), value)
    generator = torch.Generator().manual_seed(0)
    drawn = np.bincount([episodes.draw(generator).number for _ in range(4_000)], minlength=5) / 4_000
    rewarded, valued = 0.25, 0.75
    np.testing.assert_allclose(drawn, [rewarded / 2, rewarded / 2, 0, valued * 0.1, valued * 0.9], atol=0.03)
    episodes.set_value(3, 3.0)
    drawn = np.bincount([episodes.draw(generator).number for _ in range(4_000)], minlength=5) / 4_000
    np.testing.assert_allclose(drawn[3:], [valued / 2, valued / 2], atol=0.03)


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("mode", [None, "vector_entry_point"])
def test_episodes_that_span_several_rollouts_are_joined(mode: Any) -> None:
    scheme = prl.Scheme(
        prl.PPO.create_factory(test_every=0),
        # With a shared body, values are stored while acting.
        prl.OnPolicyActor.create_factory(hidden_sizes=(4,), shared_body=True),
        prl.GAEBuffer.create_factory(size=7),
        prl.VecEnv.create_factory("CartPole-v1", 2, vectorization_mode=mode),
        seed=4,
    )
    whole, found, history = WholeEpisodes(), [], []
    for _ in range(20):
        scheme.collect(10_000)
        found += list(whole.ended_in(scheme.storage))
        history.append(scheme.storage.get_all_buffer_data())
        scheme.storage.reset()
        # Unfinished episodes are saved, loaded and continued.
        other = WholeEpisodes()
        other.load_state_dict(whole.state_dict())
        whole = other
    # gymnasium's own vector environments skip a step after each episode.
    assert (scheme.steps < 14 * len(history)) == (mode is not None)
    of_envs, expected = [], []
    for env in range(2):
        of_env = {key: torch.cat([part[key][:, env] for part in history]).numpy() for key in history[0]}
        made = ~of_env[SKIPPED][:, 0].astype(bool) if mode else slice(None)
        of_envs.append({key: of_env[key][made] for key in of_env})
        ends = np.flatnonzero(of_envs[env][DONE2])
        for begin, end in zip([0, *(ends + 1)], ends, strict=False):
            expected.append((env, slice(begin, end + 1)))
    assert len(found) == len(expected) > 8
    assert max(len(one) for one in found) > 14
    by_length = {(len(one), float(np.sum(one.observations))): one for one in found}
    for env, rows in expected:
        steps = of_envs[env]
        observations = np.concatenate([steps[OBS][rows], steps[OBS2][rows][-1:]])
        one = by_length[len(observations) - 1, float(observations.sum())]
        np.testing.assert_array_equal(one.observations, observations)
        assert one.terminated
        for key in (ACT, REW, VAL):
            np.testing.assert_array_equal(one.fields[key], steps[key][rows])


# Runs


@pytest.mark.long
@pytest.mark.parametrize("memory", [None, "gru"])
def test_skipped_steps_are_in_no_added_episode(memory: Any, data: Path) -> None:
    scheme = train(ppod(data, memory, mode="vector_entry_point", max_grad_norm=0.5), 400)
    algorithm: Any = scheme.algorithm
    episodes = algorithm._replay.episodes
    kept = [one.episode for one in (*episodes.valued, *episodes.rewarded)]
    assert len(kept) > 3
    # A pole falls in no fewer steps.
    assert min(map(len, kept)) >= 8


def test_the_actors_memory_is_carried_through_repeated_steps(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = ppod(data, "gru", lr=0.0, repeated_as="policy")
    first, _, _ = run_update_phase(scheme, monkeypatch)
    second, _, _ = run_update_phase(scheme, monkeypatch)
    algorithm, rhs = scheme.algorithm, scheme.actor.initial_memory(2)
    for part in (first, second):
        for step in range(8):
            view: Any = algorithm.actor.view(part[OBS][step], rhs, part[DONE][step])
            with torch.no_grad():
                value = algorithm.value(view)  # type: ignore[attr-defined]
                log_prob = algorithm.pi(view).log_prob(part[ACT][step])  # type: ignore[attr-defined]
            torch.testing.assert_close(part[VAL][step], value)
            torch.testing.assert_close(part[LOGP][step], log_prob)
            rhs = view.rhs_after()


def rollouts(data: Path, memory: Any, main: Any, repeated: Any, **settings: Any) -> prl.Scheme:
    window = prl.Sequences(4) if memory else None
    shown = prl.from_dataset(prl.ReplayBuffer.create_factory(size=80, sequences=window), data)
    return prl.Scheme(
        prl.PPOD.create_factory(test_every=0, **settings),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=4),
        main,
        prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
        sources={"demonstrations": shown, "repeated": repeated},
    )


def gae(size: int, length: int | None = None) -> Any:
    return prl.GAEBuffer.create_factory(size=size, sequence_length=length)


DROPPING = prl.VanillaOnPolicyBuffer.create_factory(size=8, cut_episodes="drop")


@pytest.mark.parametrize(
    ("memory", "main", "repeated", "message"),
    [
        (
            "gru",
            gae(8, 4),
            gae(8, 4),
            r"'repeated' has 2 sequences, fewer than num_mini_batch=4.* smaller sequence_len",
        ),
        ("gru", gae(16, 4), gae(16, 2), "'main' have 4 steps, and those of 'repeated' 2; give both the same"),
        (None, gae(2), gae(2), r"'repeated' has 2 transitions, fewer than num_mini_batch=4; .* more environments$"),
        (None, gae(8), DROPPING, "the source 'repeated' drops steps by cut_episodes='drop'"),
        (None, DROPPING, gae(8), "the source 'main' drops steps by cut_episodes='drop'"),
    ],
)
def test_rollouts_that_make_no_joint_batches_are_refused_when_the_scheme_is_made(
    memory: Any, main: Any, repeated: Any, message: str, data: Path
) -> None:
    with pytest.raises(ValueError, match=f"PPOD: .*{message}"):
        rollouts(data, memory, main, repeated)


@pytest.mark.parametrize("memory", [None, "gru"])
def test_rollouts_with_a_row_for_each_minibatch_learn(memory: Any, data: Path) -> None:
    scheme = rollouts(data, memory, gae(8, 2 if memory else None), gae(8, 2 if memory else None))
    scheme.collect(16)
    assert len(list(scheme.update())) == 16
    scheme.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rho": 0.0}, "rho must be above 0"),
        ({"rho": 0.5, "phi": 0.5}, r"rho \+ phi below 1"),
        ({"normalize_advantages": "rollout"}, "would normalise the two rollouts separately"),
    ],
)
def test_unusable_settings_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prl.PPOD.create_factory(**settings)


def test_demonstrations_without_a_complete_episode_are_refused(tmp_path: Path) -> None:
    scheme = ppod(recorded(tmp_path / "part.npz", steps=10))
    scheme.collect(10_000)
    with pytest.raises(ValueError, match="'demonstrations' has no complete episode, from its first step to its end"):
        list(scheme.update())


@pytest.mark.long
def test_three_demonstrations_solve_a_maze_that_ppo_does_not_solve(tmp_path: Path) -> None:
    from pytorchrl.experiments import collect_demonstrations

    maze = prl.SparseMaze()
    one = prl.VecEnv.create_factory("pytorchrl/SparseMaze-v0")
    collect_demonstrations(maze.shortest_way, one, path=tmp_path / "shown.npz", episodes=3)
    settings: dict[str, Any] = {"lr": 1e-3, "entropy_coef": 0.01, "test_every": 0}
    envs = prl.VecEnv.create_factory("pytorchrl/SparseMaze-v0", num_envs=8)
    actor, rollout = prl.OnPolicyActor.create_factory(), prl.GAEBuffer.create_factory(size=128)
    shown = prl.from_dataset(prl.ReplayBuffer.create_factory(size=500), tmp_path / "shown.npz")
    with_them = prl.Scheme(
        prl.PPOD.create_factory(**settings),
        actor,
        rollout,
        envs,
        sources={"demonstrations": shown, "repeated": rollout},
        seed=1,
    )
    without = prl.Scheme(prl.PPO.create_factory(**settings), actor, rollout, envs, seed=1)
    assert train(with_them, 40_000).evaluate(20).mean_return == 1.0
    assert train(without, 40_000).evaluate(20).mean_return == 0.0

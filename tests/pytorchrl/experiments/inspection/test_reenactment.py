"""Stored episodes are replayed from their seeds and actions."""

import sys
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.experiments.inspection.reenactment import reenact
from pytorchrl.experiments.inspection.saved_storage import SavedStorage
from pytorchrl.experiments.inspection.transitions import StoredTransitions
from pytorchrl.experiments.runs import checkpoint
from tests.support.toys import Counter, Noise


class Painted(Noise):
    """Renders a picture of one colour, given by the last reward."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 7}

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.drawn = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        result = super().step(action)
        self.drawn = int(result[1] * 255)
        return result

    def render(self) -> Any:
        return np.full((12, 16, 3), self.drawn, np.uint8)


class Unrepeatable(Noise):
    """Adds its number among all environments created so far to observations, from the fourth step of an episode on."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.steps, self.number = 0, self.made

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, *rest = super().step(action)
        self.steps += 1
        return observation + (self.number if self.steps > 3 else 0), reward, *rest  # type: ignore[return-value]


def scheme_of(envs: Any, algorithm: Any = prl.DQN, storage: Any = None) -> prl.Scheme:
    """A scheme whose algorithm makes few updates."""
    on_policy = algorithm is prl.PPO
    learns = {} if on_policy else {"start_steps": 40, "mini_batch_size": 8, "update_every": 256}
    actor = prl.OnPolicyActor if on_policy else prl.OffPolicyActor
    return prl.Scheme(
        algo_factory=algorithm.create_factory(test_every=0, **learns),
        actor_factory=actor.create_factory(hidden_sizes=(8,)),
        storage_factory=storage or prl.ReplayBuffer.create_factory(size=2_000),
        train_envs_factory=envs,
        seed=5,
    )


def trained(
    folder: Path, env: Any, steps: int = 1_500, algorithm: Any = prl.DQN, storage: Any = None, **of_envs: Any
) -> tuple[StoredTransitions, Any]:
    """The transitions of a run, and its environments."""
    envs = prl.VecEnv.create_factory(env, **{"num_envs": 2, **of_envs})
    learner = prl.Learner(scheme_of(envs, algorithm, storage), steps, folder)
    learner.run()
    learner.close()
    return StoredTransitions(SavedStorage.read(folder)), envs


def first_rows(transitions: StoredTransitions, every: int = 97) -> list[int]:
    """The rows of the first transitions of some stored episodes, of all environments."""
    ring = transitions.ring
    return sorted({int(transitions.episode_of(row)[0]) for row in range(ring.start, ring.end, every)})


ENVIRONMENTS: dict[str, Any] = {
    "with random observations": {"env": Noise},
    "with a constant first observation": {"env": "FrozenLake-v1"},
    "that are equal with every seed": {"env": Counter, "env_kwargs": {"length": 7}},
    "with stacked frames": {"env": Noise, "wrappers": [("FrameStackObservation", {"stack_size": 3})]},
    "with dict observations": {"env": Counter, "env_kwargs": {"kind": "dict", "length": 7}},
    "whose rewards are normalised": {"env": Noise, "wrappers": ["NormalizeReward"]},
    "with continuous actions": {"env": "Pendulum-v1", "algorithm": prl.SAC, "num_envs": 1},
    "in a rollout, with actions beyond their bounds": {
        "env": "Pendulum-v1",
        "algorithm": prl.PPO,
        "storage": prl.GAEBuffer.create_factory(size=1_000),
        "num_envs": 1,
    },
    "in worker processes": {"env": Noise, "mode": "async"},
    "kept in a directory": {"env": Noise, "storage": "directory"},
}


@pytest.mark.quick_share(0.2, long=0.6)
@pytest.mark.filterwarnings("ignore:.*outside the bounds:UserWarning")
@pytest.mark.parametrize(
    "made",
    [
        # Rendering a pendulum is slow.
        pytest.param(made, id=name, marks=[pytest.mark.long] if made["env"] == "Pendulum-v1" else [])
        for name, made in ENVIRONMENTS.items()
    ],
)
def test_stored_episodes_are_replayed_exactly(made: dict[str, Any], tmp_path: Path) -> None:
    made = dict(made)
    if made.get("storage") == "directory":
        made["storage"] = prl.ReplayBuffer.create_factory(size=2_000, directory=tmp_path / "replay")
    transitions, envs = trained(tmp_path / "run", **made)
    for row in first_rows(transitions):
        described = transitions.describe([row])[0]
        played = reenact(tmp_path / "run", row, envs)
        assert (played.differs_at, played.difference, played.moment) == (None, "", 0), described


@pytest.mark.long
def test_in_a_full_storage_episodes_that_follow_a_stored_seed_are_replayed(tmp_path: Path) -> None:
    transitions, envs = trained(
        tmp_path, Noise, steps=8_000, storage=prl.ReplayBuffer.create_factory(size=1_700), num_envs=2
    )
    outcome: dict[int, int | str | None] = {}
    for row in first_rows(transitions):
        try:
            outcome[row] = reenact(tmp_path, row, envs).differs_at
        except prl.ReenactmentError as error:
            outcome[row] = str(error).partition(f"of row {row} ")[2]
    known = [row for row, found in outcome.items() if found is None]
    lost = "was given before the oldest stored step, and the actions since then have been overwritten"
    assert set(outcome.values()) == {None, lost}
    # An environment is seeded about every 512 steps, at the latest after twice as many.
    assert all(found is None for row, found in outcome.items() if row // 2 >= transitions.ring.oldest + 1_100)
    assert len(known) > len(outcome) / 3


def test_the_frames_show_the_episode_and_mark_the_transition(tmp_path: Path) -> None:
    transitions, envs = trained(tmp_path, Painted)
    row = int(transitions.episode_of(1_401)[-1])
    rows = transitions.episode_of(row)
    played = reenact(tmp_path, row, envs)
    rewards = [one.reward for one in transitions.describe(rows)]
    assert len(played.frames) == len(rows) + 1
    assert played.moment == len(rows) - 1
    assert played.frames_per_second == 7
    assert [int(frame[0, 0, 0]) for frame in played.frames[1:]] == [int(reward * 255) for reward in rewards]


def test_a_non_deterministic_environment_is_reported_with_the_step_that_differs(tmp_path: Path) -> None:
    transitions, envs = trained(tmp_path, Unrepeatable, steps=300)
    # The first episode is long enough to differ, in its fourth step.
    long = next(row for row in first_rows(transitions, every=1) if transitions.describe([row])[0].episode_length > 5)
    assert long < 60
    played = reenact(tmp_path, long, envs)
    assert played.difference == "observation"
    assert played.differs_at is not None
    assert played.differs_at <= 3
    # Episodes stored later depend on this one, which was different in the replay.
    later = reenact(tmp_path, first_rows(transitions)[-1], envs)
    assert later.differs_at is not None
    assert later.differs_at < 0


@pytest.mark.long
def test_episodes_are_replayed_after_a_resume_that_did_not_restore_the_environments(tmp_path: Path) -> None:
    _, envs = trained(tmp_path, Noise, steps=700)
    state = checkpoint.load(tmp_path / "checkpoint.pt")
    for history in state["scheme"]["collector"]["envs"]["histories"]:
        history["observation"] += 1
    checkpoint.save(tmp_path / "checkpoint.pt", state)
    learner = prl.Learner.resume(tmp_path, scheme=scheme_of(envs), target_steps=3_000)
    learner.run()
    learner.close()
    transitions = StoredTransitions(SavedStorage.read(tmp_path))
    for row in first_rows(transitions):
        assert reenact(tmp_path, row, envs).differs_at is None


def test_episodes_that_cannot_be_replayed_are_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(tmp_path / "robot", Noise, steps=100, replay_on_resume=False)
    with pytest.raises(prl.ReenactmentError, match="kept no actions to replay: replay_on_resume=False"):
        reenact(tmp_path / "robot", 60, prl.VecEnv.create_factory(Noise))
    trained(tmp_path / "script", Noise, steps=100)
    monkeypatch.delitem(sys.modules, Noise.__module__)  # as in a process that has not imported it
    with pytest.raises(prl.CompositionError, match=r"made by .*Noise; name the module that defines it by --import"):
        reenact(tmp_path / "script", 60)


class Camera(gym.Env[Any, Any]):
    """Observes images of noise that does not depend on the seed, and does not render."""

    observation_space = spaces.Box(0, 255, (40, 48, 3), np.uint8)
    action_space = spaces.Discrete(2)

    number = 0
    """Number of instances created so far."""

    def __init__(self) -> None:
        Camera.number += 1
        self.generator = np.random.default_rng(Camera.number)
        self.steps = 0

    def _observation(self) -> Any:
        return self.generator.integers(0, 256, (40, 48, 3)).astype(np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self._observation(), 0.0, self.steps == 9, False, {}


def test_stored_images_are_shown_if_an_episode_cannot_be_replayed(tmp_path: Path) -> None:
    transitions, envs = trained(tmp_path, Camera, steps=100)
    film = prl.film_transition(tmp_path, 61, envs)
    rows = transitions.episode_of(61)
    assert film.description.startswith("The environment is not deterministic:")
    assert film.description.endswith(
        "its observation differs from the stored one. The frames are the stored observations."
    )
    assert (len(film.frames), film.moment) == (10, rows.tolist().index(61))
    for frame, one in zip(film.frames, transitions.describe(rows), strict=False):
        np.testing.assert_array_equal(frame, one.observation)

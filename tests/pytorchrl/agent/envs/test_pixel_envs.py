"""Environments that show rendered images: sizes, colours, repeated actions, stacks stored once, ends of episodes."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

import pytorchrl as prl
from tests.support.toys import Counter
from tests.support.training import train


class Painted(Counter):
    """Counts up to 7, and renders three colours that follow from the count."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(length=7, actions=spaces.Box(-1, 1, (1,), np.float32))
        self.render_mode = render_mode

    def render(self) -> Any:
        image = np.zeros((8, 12, 3), np.uint8)
        image[..., 0], image[..., 1], image[:, 6:, 2] = 10 + self.count, 100, 200
        return image


def test_observations_are_rendered_images_with_channels_first() -> None:
    env = prl.ObservePixels(Painted("rgb_array"), size=4)
    assert env.observation_space == spaces.Box(0, 255, (3, 4, 4), np.uint8)
    observation, _ = env.reset()
    assert env.observation_space.contains(observation)
    assert (observation[0] == 10).all()
    assert (observation[1] == 100).all()
    assert observation[2].tolist() == [[0, 0, 200, 200]] * 4
    assert (env.step(np.zeros(1))[0][0] == 11).all()


def test_grey_images_have_the_luminance_of_the_colours() -> None:
    env = prl.ObservePixels(Painted("rgb_array"), size=4, grayscale=True)
    observation, _ = env.reset()
    assert env.observation_space == spaces.Box(0, 255, (4, 4), np.uint8)
    grey = 0.299 * 10 + 0.587 * 100
    assert observation.tolist() == [[round(grey)] * 2 + [round(grey + 0.114 * 200)] * 2] * 4


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: prl.ObservePixels(Painted()), 'must be made with render_mode="rgb_array", that of .* is None'),
        (lambda: prl.ObservePixels(Painted("rgb_array"), size=9).reset(), "rendered images, 8 x 12, got 9"),
        (lambda: prl.RepeatAction(Painted(), 0), "RepeatAction: times must be at least 1, got 0"),
    ],
)
def test_wrong_settings_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_repeated_action_sums_rewards_until_the_episode_ends() -> None:
    env = prl.RepeatAction(Painted(), 3)
    env.reset()
    steps = [env.step(np.zeros(1)) for _ in range(3)]
    assert [reward for _, reward, *_ in steps] == [1 + 2 + 3, 4 + 5 + 6, 7]
    assert [terminated for _, _, terminated, *_ in steps] == [False, False, True]
    cut = prl.RepeatAction(TimeLimit(Painted(), 4), 3)
    cut.reset()
    assert cut.step(np.zeros(1))[2:4] == (False, False)
    _, reward, terminated, truncated, _ = cut.step(np.zeros(1))
    assert (reward, terminated, truncated) == (4, False, True)


def test_stacks_hold_the_last_images_and_returns_are_of_all_steps() -> None:
    envs = prl.pixel_envs(Painted, size=4, action_repeat=2)()
    first = envs.reset(seed=0)
    assert first.shape == (1, 3, 3, 4, 4)
    assert envs.stacked_frames == 3
    seen = [envs.step(np.zeros((1, 1), np.float32)) for _ in range(4)]
    assert seen[2].observation[0, :, 0, 0, 0].tolist() == [12, 14, 16]
    # The episode of 7 steps ends within the repetition of the fourth action.
    assert seen[3].next_observation[0, :, 0, 0, 0].tolist() == [14, 16, 17]
    assert seen[3].observation[0, :, 0, 0, 0].tolist() == [10, 10, 10]
    assert seen[3].reward.item() == 7
    (episode,) = envs.finished_episodes
    assert episode.episode_return == 1 + 2 + 3 + 4 + 5 + 6 + 7
    assert episode.length == 7
    envs.close()


def test_without_stack_and_repetition_an_observation_is_one_image() -> None:
    envs = prl.pixel_envs(Painted, 2, size=4, action_repeat=1, frame_stack=1)()
    assert envs.reset(seed=0).shape == (2, 3, 4, 4)
    assert envs.stacked_frames == 0
    envs.close()


def test_the_pixel_pendulum_has_an_id_and_is_the_same_from_run_to_run() -> None:
    seen = []
    for _ in range(2):
        envs = prl.VecEnv.create_factory("pytorchrl/PixelPendulum-v0", env_kwargs={"size": 36})()
        assert envs.stacked_frames == 3
        observations = [envs.reset(seed=3)]
        observations += [envs.step(np.full((1, 1), 2, np.float32)).observation for _ in range(5)]
        seen.append(np.stack(observations))
        envs.close()
    assert seen[0].shape == (6, 1, 3, 36, 36)
    assert np.array_equal(*seen)
    assert len({image.tobytes() for image in seen[0][:, 0, -1]}) == 6


def test_the_pixel_pendulum_pays_what_two_steps_of_pendulum_pay() -> None:
    pixels, plain = gym.make("pytorchrl/PixelPendulum-v0", size=36), gym.make("Pendulum-v1")
    pixels.reset(seed=1)
    plain.reset(seed=1)
    action, ends = np.array([1.5], np.float32), []
    for _ in range(100):
        _, reward, _, truncated, _ = pixels.step(action)
        assert float(reward) == pytest.approx(sum(float(plain.step(action)[1]) for _ in range(2)))
        ends.append(truncated)
    assert ends == [False] * 99 + [True]


def test_a_run_from_pixels_stores_each_image_once(tmp_path: Path) -> None:
    scheme = prl.Scheme(
        prl.TD3.create_factory(start_steps=10, mini_batch_size=4, update_every=10, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), feature_extractor="small_cnn"),
        prl.ReplayBuffer.create_factory(size=50),
        prl.pixel_envs(Painted, size=8, action_repeat=1),
        seed=1,
    )
    train(scheme, 30)
    assert scheme.storage.nbytes < 2 * 50 * 3 * 8 * 8
    scheme.close()

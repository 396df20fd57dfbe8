"""stable-baselines3's DQN and sb3-contrib's QR-DQN with the network and settings that ours have on Breakout."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from numpy.typing import NDArray
from sb3_contrib import QRDQN
from stable_baselines3 import DQN
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from benchmarks.learning.values_compositions import BREAKOUT_SETTINGS, FRAMES_BETWEEN_TARGETS, FRAMES_BETWEEN_UPDATES
from benchmarks.shared.stable_baselines3 import Records, without_log_folder

_PEERS: Mapping[str, tuple[type[Any], Mapping[str, Any]]] = {
    "DQN of stable-baselines3": (DQN, {}),
    "QRDQN of sb3-contrib": (QRDQN, {"n_quantiles": BREAKOUT_SETTINGS["num_quantiles"]}),
}
"""Their classes, and further arguments of their networks."""


def train_peer(
    name: str, env: gym.Env[Any, Any], seed: int, target_steps: int, folder: Path, steps_of_a_record: int
) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Train one of the peers, and write its returns as our runs do.

    Args:
        name: of the peer.
        env: the environment to train in.
        seed: of all random numbers.
        target_steps: environment steps to train for.
        folder: where ``metrics.jsonl`` goes.
        steps_of_a_record: environment steps between its lines.

    Returns:
        The greedy policy, from observations (E, *obs) to actions (E, 1).
    """
    peer, of_network = _PEERS[name]
    shared = BREAKOUT_SETTINGS
    model = peer(
        "MlpPolicy",
        env,
        learning_rate=shared["lr"],
        buffer_size=shared["buffer_size"],
        learning_starts=shared["start_steps"],
        batch_size=shared["mini_batch_size"],
        gamma=shared["gamma"],
        train_freq=FRAMES_BETWEEN_UPDATES,
        target_update_interval=FRAMES_BETWEEN_TARGETS,
        exploration_fraction=shared["epsilon_fraction"],
        exploration_final_eps=shared["final_epsilon"],
        max_grad_norm=shared["max_grad_norm"],
        policy_kwargs={
            "features_extractor_class": SmallCNN,
            "net_arch": [],
            "optimizer_class": torch.optim.Adam,
            "optimizer_kwargs": {"eps": shared["adam_eps"]},
            **of_network,
        },
        seed=seed,
        device="cpu",
    )
    without_log_folder(model).learn(target_steps, callback=Records(folder / "metrics.jsonl", steps_of_a_record))
    return lambda observation: model.predict(observation, deterministic=True)[0][:, None]


class SmallCNN(BaseFeaturesExtractor):  # type: ignore[misc]
    """One convolution of 16 filters of 3 by 3 and a layer of 128 units.

    Args:
        observation_space: images (H, W, channels) of zeros and ones.
    """

    def __init__(self, observation_space: gym.spaces.Box) -> None:
        super().__init__(observation_space, features_dim=128)
        height, width, channels = observation_space.shape
        self.layers = nn.Sequential(
            *(nn.Conv2d(channels, 16, 3), nn.ReLU(), nn.Flatten()),
            *(nn.Linear(16 * (height - 2) * (width - 2), 128), nn.ReLU()),
        )

    def forward(self, observations: Tensor) -> Tensor:
        """(B, H, W, channels) to (B, 128)."""
        features: Tensor = self.layers(observations.float().movedim(-1, 1))
        return features

"""Train a plain DQN with n-step returns, with no storage or algorithm of ours: ``plain_n_step.py --n-step 3``.

It was written to find out whether the slow start of 3-step returns in MinAtar's Asterix, on the page of the strategies
of replay, is a fault of ours: settings and network are those of that page.
"""

import copy
from collections import deque
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
import tyro
from torch import Tensor, nn

import pytorchrl  # noqa: F401 - registers the games

_CAPACITY, _BATCH, _GAMMA = 100_000, 32, 0.99
_RANDOM_STEPS, _FRAMES_OF_EPSILON, _FINAL_EPSILON = 1_000, 100_000, 0.01
_FRAMES_BETWEEN_UPDATES, _UPDATES_BETWEEN_TARGETS = 4, 250
_EPISODES = 50
"""Over which the mean return is printed."""


@dataclass
class Arguments:
    """What is trained."""

    n_step: int = 1
    seed: int = 1
    frames: int = 300_000
    game: str = "Asterix"


class Replay:
    """Transitions of n steps: observation, action, discounted sum of rewards, last observation and its discount."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.observations = np.zeros((2, _CAPACITY, *shape), np.bool_)
        self.actions = np.zeros(_CAPACITY, np.int64)
        self.returns, self.discounts = np.zeros((2, _CAPACITY), np.float32)
        self.inserted = 0

    def insert(self, first: np.ndarray, action: int, total: float, last: np.ndarray, discount: float) -> None:
        """Store a transition in place of the oldest one."""
        row = self.inserted % _CAPACITY
        self.observations[:, row] = first, last
        self.actions[row], self.returns[row], self.discounts[row] = action, total, discount
        self.inserted += 1


def as_images(observations: np.ndarray) -> Tensor:
    """Return observations (N, 10, 10, channels) as float32 with the channels first."""
    return torch.as_tensor(observations, dtype=torch.float32).permute(0, 3, 1, 2)


def loss_of(network: nn.Module, target: nn.Module, replay: Replay, generator: np.random.Generator) -> Tensor:
    """Return Huber's loss of a batch with the targets of double DQN."""
    rows = generator.integers(min(replay.inserted, _CAPACITY), size=_BATCH)
    first, last = map(as_images, replay.observations[:, rows])
    with torch.no_grad():
        best = network(last).argmax(1, keepdim=True)
        value = torch.as_tensor(replay.discounts[rows]) * target(last).gather(1, best)[:, 0]
    predicted = network(first).gather(1, torch.as_tensor(replay.actions[rows])[:, None])[:, 0]
    return F.smooth_l1_loss(predicted, torch.as_tensor(replay.returns[rows]) + value)


def main(arguments: Arguments) -> None:
    """Train, and print the mean return of the last training episodes after each tenth of the frames."""
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    generator = np.random.default_rng(arguments.seed)
    env = gym.make(f"pytorchrl/MinAtar-{arguments.game}-v0", max_episode_steps=5_000)
    observation, _ = env.reset(seed=arguments.seed)
    channels, actions = observation.shape[-1], int(env.action_space.n)  # type: ignore[attr-defined]
    layers = [nn.Conv2d(channels, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 8 * 8, 128), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Linear(128, actions))
    target, replay = copy.deepcopy(network), Replay(observation.shape)
    optimizer = torch.optim.Adam(network.parameters(), lr=2.5e-4, eps=3.125e-4)
    steps: deque[tuple[np.ndarray, int, float]] = deque()
    returns, total, updates = [0.0], 0.0, 0
    for frame in range(1, arguments.frames + 1):
        epsilon = max(_FINAL_EPSILON, 1 - (1 - _FINAL_EPSILON) * frame / _FRAMES_OF_EPSILON)
        if frame <= _RANDOM_STEPS or generator.random() < epsilon:
            action = int(generator.integers(actions))
        else:
            with torch.no_grad():
                action = int(network(as_images(observation[None])).argmax())
        following, reward, terminated, truncated, _ = env.step(action)
        steps.append((observation, action, float(reward)))
        total += float(reward)
        while len(steps) == arguments.n_step or (steps and (terminated or truncated)):
            discounted = sum(_GAMMA**number * each for number, (_, _, each) in enumerate(steps))
            first, chosen, _ = steps[0]
            replay.insert(first, chosen, discounted, following, 0.0 if terminated else _GAMMA ** len(steps))
            steps.popleft()
        observation = following
        if terminated or truncated:
            returns.append(total)
            total = 0.0
            observation, _ = env.reset()
        if frame > _RANDOM_STEPS and frame % _FRAMES_BETWEEN_UPDATES == 0:
            optimizer.zero_grad()
            loss_of(network, target, replay, generator).backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), 10.0)
            optimizer.step()
            updates += 1
            if updates % _UPDATES_BETWEEN_TARGETS == 0:
                target.load_state_dict(network.state_dict())
        if frame % (arguments.frames // 10) == 0:
            print(f"{frame:,} frames: {np.mean(returns[-_EPISODES:]):.2f}", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))

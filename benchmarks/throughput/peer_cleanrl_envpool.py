"""PPO on Atari as CleanRL's script with EnvPool has it: its settings, network and loop, as a function to be timed.

The script is for the gym before gymnasium; EnvPool's gymnasium interface takes its place here, whose step after an end
makes no transition, as before. What it writes to TensorBoard is left out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import envpool
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributions import Categorical


@dataclass(frozen=True)
class Settings:
    """Settings of CleanRL's ``ppo_atari_envpool.py``, except for the number of threads."""

    num_envs: int = 8
    num_steps: int = 128
    epochs: int = 4
    minibatches: int = 4
    lr: float = 2.5e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.1
    entropy: float = 0.01
    value: float = 0.5
    max_grad_norm: float = 0.5
    num_threads: int = 1


def pool_settings(settings: Settings) -> dict[str, Any]:
    """Return the arguments with which the script makes its pool."""
    return {"episodic_life": True, "reward_clip": True, "num_threads": settings.num_threads}


def cleanrl_ppo_envpool(env: str, seed: int, settings: Settings) -> Callable[[int], None]:
    """Return a function that trains for a number of environment steps; a second call continues."""
    torch.manual_seed(seed)
    pool: Any = envpool.make(
        env, env_type="gymnasium", num_envs=settings.num_envs, seed=seed, **pool_settings(settings)
    )
    agent = _Agent(int(pool.action_space.n))
    optimizer = torch.optim.Adam(agent.parameters(), lr=settings.lr, eps=1e-5)
    shape = settings.num_steps, settings.num_envs
    obs = torch.zeros(*shape, 4, 84, 84)
    actions, logprobs, rewards, dones, values = (torch.zeros(shape) for _ in range(5))
    following = torch.Tensor(pool.reset()[0])
    done = torch.zeros(settings.num_envs)
    returns: NDArray[np.float64] = np.zeros(settings.num_envs)

    def rollout() -> None:
        nonlocal following, done, returns
        for step in range(settings.num_steps):
            obs[step], dones[step] = following, done
            with torch.no_grad():
                action, logprob, _, value = agent.act(following)
            values[step], actions[step], logprobs[step] = value.flatten(), action, logprob
            seen, reward, terminated, truncated, infos = pool.step(action.numpy().astype(np.int32))
            ended = terminated | truncated
            returns = (returns + infos["reward"]) * (1 - infos["terminated"])
            rewards[step] = torch.tensor(reward)
            following, done = torch.Tensor(seen), torch.Tensor(ended)

    def learn() -> None:
        with torch.no_grad():
            next_value = agent.value(following).reshape(-1)
            advantages, last = torch.zeros(shape), torch.zeros(settings.num_envs)
            for step in reversed(range(settings.num_steps)):
                is_last = step == settings.num_steps - 1
                goes_on = 1.0 - (done if is_last else dones[step + 1])
                after = next_value if is_last else values[step + 1]
                delta = rewards[step] + settings.gamma * after * goes_on - values[step]
                advantages[step] = last = delta + settings.gamma * settings.gae_lambda * goes_on * last
            targets = advantages + values
        flat = [part.reshape(-1, *part.shape[2:]) for part in (obs, actions, logprobs, advantages, targets, values)]
        batch = settings.num_envs * settings.num_steps
        order = np.arange(batch)
        for _ in range(settings.epochs):
            np.random.shuffle(order)  # noqa: NPY002 - as the script does
            for start in range(0, batch, batch // settings.minibatches):
                update(*(part[order[start : start + batch // settings.minibatches]] for part in flat))

    def update(seen: Tensor, done_: Tensor, before: Tensor, advantage: Tensor, target: Tensor, valued: Tensor) -> None:
        _, logprob, entropy, value = agent.act(seen, done_.long())
        value, ratio = value.view(-1), (logprob - before).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = torch.clamp(ratio, 1 - settings.clip, 1 + settings.clip)
        policy_loss = torch.max(-advantage * ratio, -advantage * clipped).mean()
        near = valued + torch.clamp(value - valued, -settings.clip, settings.clip)
        value_loss = 0.5 * torch.max((value - target) ** 2, (near - target) ** 2).mean()
        loss = policy_loss - settings.entropy * entropy.mean() + settings.value * value_loss
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(agent.parameters(), settings.max_grad_norm)
        optimizer.step()

    def train(steps: int) -> None:
        for _ in range(steps // (settings.num_envs * settings.num_steps)):
            rollout()
            learn()

    return train


class _Agent(nn.Module):
    """The network of the script: one body, two heads."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.network = nn.Sequential(
            *(_initialised(nn.Conv2d(4, 32, 8, stride=4)), nn.ReLU()),
            *(_initialised(nn.Conv2d(32, 64, 4, stride=2)), nn.ReLU()),
            *(_initialised(nn.Conv2d(64, 64, 3, stride=1)), nn.ReLU()),
            *(nn.Flatten(), _initialised(nn.Linear(64 * 7 * 7, 512)), nn.ReLU()),
        )
        self.actor, self.critic = _initialised(nn.Linear(512, actions), 0.01), _initialised(nn.Linear(512, 1), 1.0)

    def value(self, observation: Tensor) -> Tensor:
        value: Tensor = self.critic(self.network(observation / 255.0))
        return value

    def act(self, observation: Tensor, action: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        hidden = self.network(observation / 255.0)
        policy = Categorical(logits=self.actor(hidden))  # type: ignore[no-untyped-call]
        action = policy.sample() if action is None else action  # type: ignore[no-untyped-call]
        return (
            action,
            policy.log_prob(action),  # type: ignore[no-untyped-call]
            policy.entropy(),  # type: ignore[no-untyped-call]
            self.critic(hidden),
        )


def _initialised(layer: Any, gain: float = 2**0.5) -> Any:
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.constant_(layer.bias, 0.0)
    return layer

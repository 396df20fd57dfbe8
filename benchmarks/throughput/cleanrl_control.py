"""SAC, TD3 and PPO as CleanRL's scripts have them: the same networks, buffers and loops, as functions to be timed.

CleanRL is scripts, not a library: its package on PyPI holds older ones, which need the gym before gymnasium. Each
function returns another one that trains for a number of environment steps; a second call continues.
"""

from collections.abc import Callable, Iterable
from itertools import chain, pairwise
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics
from numpy.typing import NDArray
from stable_baselines3.common.buffers import ReplayBuffer
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

Train: TypeAlias = Callable[[int], None]

_EPSILON = 1e-6


def _envs(env: str, num_envs: int = 1) -> SyncVectorEnv:
    return SyncVectorEnv(
        [lambda: RecordEpisodeStatistics(gym.make(env))] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP
    )


def _mlp(*sizes: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers = [layer for pair in pairwise(sizes) for layer in (nn.Linear(*pair), activation())]
    return nn.Sequential(*layers[:-1])


def _follow(targets: Iterable[nn.Module], networks: Iterable[nn.Module], tau: float) -> None:
    for target_network, network in zip(targets, networks, strict=True):
        for target, parameter in zip(target_network.parameters(), network.parameters(), strict=True):
            target.data.copy_(tau * parameter.data + (1 - tau) * target.data)


class _Gaussian(nn.Module):
    """A squashed Gaussian policy with a state-dependent deviation."""

    def __init__(self, size: int, actions: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.body = nn.Sequential(_mlp(size, *hidden), nn.ReLU())
        self.mean, self.log_std = nn.Linear(hidden[-1], actions), nn.Linear(hidden[-1], actions)

    def sample(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Sample actions within -1 and 1 by reparameterisation; return them with their log-probabilities."""
        features = self.body(observation)
        log_std = -5 + 0.5 * 7 * (torch.tanh(self.log_std(features)) + 1)
        normal = Normal(self.mean(features), log_std.exp())
        drawn = normal.rsample()
        action = torch.tanh(drawn)
        log_prob = normal.log_prob(drawn) - torch.log(1 - action.pow(2) + _EPSILON)
        return action, log_prob.sum(1, keepdim=True)


class _Collector:
    """One environment with continuous actions within -1 and 1, and a buffer of its transitions."""

    def __init__(self, env: str, seed: int, buffer_size: int) -> None:
        self.envs = _envs(env)
        spaces = self.envs.single_observation_space, self.envs.single_action_space
        self.size, self.actions = (int(np.prod(space.shape or ())) for space in spaces)
        spaces[0].dtype = np.dtype(np.float32)  # type: ignore[misc]  # as the scripts do, so that the buffer stores it
        self.buffer = ReplayBuffer(buffer_size, *spaces, "cpu", handle_timeout_termination=False)
        self.observation: NDArray[Any] = self.envs.reset(seed=seed)[0]
        self.steps = 0

    def step(self, action: NDArray[Any]) -> None:
        following, reward, terminated, truncated, infos = self.envs.step(action)
        last = following.copy()
        for index in np.flatnonzero(truncated | terminated):
            last[index] = infos["final_obs"][index]
        self.buffer.add(self.observation, last, action, reward, terminated, [{}])
        self.observation = following
        self.steps += 1

    def random_action(self) -> NDArray[Any]:
        return np.asarray(self.envs.action_space.sample())

    def tensor(self) -> Tensor:
        return torch.Tensor(self.observation)


def cleanrl_sac(
    env: str, seed: int, *, lr: float, hidden: tuple[int, ...], batch: int, start_steps: int, buffer_size: int
) -> Train:
    """SAC; its policy is updated twice after every second step."""
    torch.manual_seed(seed)
    collector = _Collector(env, seed, buffer_size)
    policy = _Gaussian(collector.size, collector.actions, hidden)
    critics, targets = ([_mlp(collector.size + collector.actions, *hidden, 1) for _ in range(2)] for _ in range(2))
    _follow(targets, critics, 1.0)
    critic_optimizer = torch.optim.Adam(chain(*(critic.parameters() for critic in critics)), lr=lr)
    policy_optimizer = torch.optim.Adam(policy.parameters(), lr=lr)
    log_alpha = torch.zeros(1, requires_grad=True)
    alpha_optimizer = torch.optim.Adam([log_alpha], lr=lr)

    def update() -> None:
        data = collector.buffer.sample(batch)
        with torch.no_grad():
            action, log_prob = policy.sample(data.next_observations)
            following = torch.cat([data.next_observations, action], 1)
            least = torch.min(targets[0](following), targets[1](following)) - log_alpha.exp() * log_prob
            wanted = data.rewards.flatten() + (1 - data.dones.flatten()) * 0.99 * least.flatten()
        taken = torch.cat([data.observations, data.actions], 1)
        loss = sum(nn.functional.mse_loss(critic(taken).flatten(), wanted) for critic in critics)
        critic_optimizer.zero_grad()
        loss.backward()  # type: ignore[union-attr]
        critic_optimizer.step()
        if collector.steps % 2 == 0:
            for _ in range(2):
                improve(data.observations)
        _follow(targets, critics, 0.005)

    def improve(observations: Tensor) -> None:
        action, log_prob = policy.sample(observations)
        now = torch.cat([observations, action], 1)
        loss = (log_alpha.exp().item() * log_prob - torch.min(critics[0](now), critics[1](now))).mean()
        policy_optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        policy_optimizer.step()
        with torch.no_grad():
            _, log_prob = policy.sample(observations)
        alpha_loss = (-log_alpha.exp() * (log_prob - collector.actions)).mean()
        alpha_optimizer.zero_grad()
        alpha_loss.backward()
        alpha_optimizer.step()

    def train(steps: int) -> None:
        for _ in range(steps):
            if collector.steps < start_steps:
                action = collector.random_action()
            else:
                with torch.no_grad():
                    action = policy.sample(collector.tensor())[0].numpy()
            collector.step(action)
            if collector.steps > start_steps:
                update()

    return train


def cleanrl_td3(
    env: str, seed: int, *, lr: float, hidden: tuple[int, ...], batch: int, start_steps: int, buffer_size: int
) -> Train:
    """TD3, whose policy and targets are updated after every second step."""
    torch.manual_seed(seed)
    generator = np.random.default_rng(seed)
    collector = _Collector(env, seed, buffer_size)
    size, actions = collector.size, collector.actions
    policy, target_policy = (nn.Sequential(_mlp(size, *hidden, actions), nn.Tanh()) for _ in range(2))
    critics, targets = ([_mlp(size + actions, *hidden, 1) for _ in range(2)] for _ in range(2))
    _follow([target_policy, *targets], [policy, *critics], 1.0)
    critic_optimizer = torch.optim.Adam(chain(*(critic.parameters() for critic in critics)), lr=lr)
    policy_optimizer = torch.optim.Adam(policy.parameters(), lr=lr)

    def update() -> None:
        data = collector.buffer.sample(batch)
        with torch.no_grad():
            noise = (torch.randn_like(data.actions) * 0.2).clamp(-0.5, 0.5)
            action = (target_policy(data.next_observations) + noise).clamp(-1, 1)
            following = torch.cat([data.next_observations, action], 1)
            least = torch.min(targets[0](following), targets[1](following))
            wanted = data.rewards.flatten() + (1 - data.dones.flatten()) * 0.99 * least.flatten()
        taken = torch.cat([data.observations, data.actions], 1)
        loss = sum(nn.functional.mse_loss(critic(taken).flatten(), wanted) for critic in critics)
        critic_optimizer.zero_grad()
        loss.backward()  # type: ignore[union-attr]
        critic_optimizer.step()
        if collector.steps % 2 == 0:
            policy_loss = -critics[0](torch.cat([data.observations, policy(data.observations)], 1)).mean()
            policy_optimizer.zero_grad()
            policy_loss.backward()
            policy_optimizer.step()
            _follow([target_policy, *targets], [policy, *critics], 0.005)

    def train(steps: int) -> None:
        for _ in range(steps):
            if collector.steps < start_steps:
                action = collector.random_action()
            else:
                with torch.no_grad():
                    action = policy(collector.tensor()).numpy()
                action = (action + generator.normal(0, 0.1, action.shape)).clip(-1, 1)
            collector.step(action)
            if collector.steps > start_steps:
                update()

    return train


def cleanrl_ppo(
    env: str, seed: int, *, lr: float, hidden: tuple[int, ...], num_envs: int, rollout: int, epochs: int, batches: int
) -> Train:
    """PPO over discrete actions, with GAE."""
    torch.manual_seed(seed)
    generator = np.random.default_rng(seed)
    envs = _envs(env, num_envs)
    size = int(np.prod(envs.single_observation_space.shape or ()))
    policy = _mlp(size, *hidden, int(envs.single_action_space.n), activation=nn.Tanh)  # type: ignore[attr-defined]
    value = _mlp(size, *hidden, 1, activation=nn.Tanh)
    optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], lr=lr, eps=1e-5)
    observations = torch.zeros(rollout, num_envs, size)
    chosen, log_probs, rewards, dones, values = (torch.zeros(rollout, num_envs) for _ in range(5))
    following, done = torch.Tensor(envs.reset(seed=seed)[0]), torch.zeros(num_envs)

    def collect() -> None:
        nonlocal following, done
        for step in range(rollout):
            observations[step], dones[step] = following, done
            with torch.no_grad():
                distribution = Categorical(logits=policy(following))
                action = distribution.sample()  # type: ignore[no-untyped-call]
                values[step] = value(following).flatten()
            chosen[step], log_probs[step] = action, distribution.log_prob(action)  # type: ignore[no-untyped-call]
            observation, reward, terminated, truncated, _ = envs.step(action.numpy())
            rewards[step] = torch.tensor(reward).view(-1)
            following, done = torch.Tensor(observation), torch.Tensor(terminated | truncated)

    def advantages() -> Tensor:
        with torch.no_grad():
            next_value = value(following).flatten()
        found, last = torch.zeros_like(rewards), torch.zeros(num_envs)
        for step in reversed(range(rollout)):
            goes_on = 1.0 - (done if step == rollout - 1 else dones[step + 1])
            after = next_value if step == rollout - 1 else values[step + 1]
            delta = rewards[step] + 0.99 * after * goes_on - values[step]
            found[step] = last = delta + 0.99 * 0.95 * goes_on * last
        return found

    def update() -> None:
        estimates = advantages()
        rows = observations.reshape(-1, size), chosen.flatten(), log_probs.flatten(), estimates.flatten()
        returns = (estimates + values).flatten()
        order = np.arange(rollout * num_envs)
        for _ in range(epochs):
            generator.shuffle(order)
            for batch in np.split(order, batches):
                seen, action, before, advantage = (column[batch] for column in rows)
                distribution = Categorical(logits=policy(seen))
                log_ratio = distribution.log_prob(action) - before  # type: ignore[no-untyped-call]
                ratio = log_ratio.exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                policy_loss = torch.max(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2)).mean()
                value_loss = 0.5 * (value(seen).flatten() - returns[batch]).square().mean()
                entropy = distribution.entropy().mean()  # type: ignore[no-untyped-call]
                loss = policy_loss + value_loss - 0.0 * entropy
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_([*policy.parameters(), *value.parameters()], 0.5)
                optimizer.step()

    def train(steps: int) -> None:
        for _ in range(steps // (rollout * num_envs)):
            collect()
            update()

    return train

"""An agent for a loop of one's own: ``python examples/own_loop.py --algorithm sac`` (or dqn, ppo)."""

from typing import Any, Literal

import gymnasium as gym
import tyro

import pytorchrl as prl

OFF, ON = (cls.create_factory(hidden_sizes=(64, 64)) for cls in (prl.OffPolicyActor, prl.OnPolicyActor))
TASKS: dict[str, Any] = {
    "dqn": ("CartPole-v1", 30_000, prl.DQN.create_factory(lr=5e-4, update_every=2), OFF, prl.ReplayBuffer),
    "ppo": ("CartPole-v1", 60_000, prl.PPO.create_factory(num_epochs=10, num_mini_batch=16), ON, prl.GAEBuffer),
    "sac": ("Pendulum-v1", 8_000, prl.SAC.create_factory(lr_pi=1e-3), OFF, prl.ReplayBuffer),
}


def train(algorithm: Literal["dqn", "ppo", "sac"] = "dqn", log_dir: str = "runs/own-loop", steps: int = 0) -> prl.Agent:
    """Train; a killed run goes on from its last checkpoint when it is started again."""
    env_id, usual_steps, algo, actor, storage = TASKS[algorithm]
    env = gym.make(env_id)  # or a robot, a game, a simulator
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
    size = storage.create_factory(size=1_024 if storage is prl.GAEBuffer else 50_000)
    agent = prl.Agent(algo, actor, size, log_dir, steps or usual_steps, **spaces, resume=True, seed=1)
    while not agent.done:
        observation, _ = env.reset(seed=agent.episodes)
        ended = False
        while not ended:
            action = agent.act(observation)
            observation, reward, terminated, truncated, info = env.step(action)
            agent.observe(observation, reward, terminated, truncated, info)
            ended = terminated or truncated
        if agent.episodes % 10 == 0:
            agent.save()
    return agent


if __name__ == "__main__":
    agent = tyro.cli(train, description=__doc__)
    print(f"train return {agent.get_metrics()['train/return']:.1f} in {agent.learner.log_dir}, {agent.steps:,} steps")

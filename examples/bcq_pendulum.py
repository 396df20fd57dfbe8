"""BCQ swings up Pendulum-v1 by data of mixed quality: ``python examples/bcq_pendulum.py --help`` lists what can be set.

Learning uses no environment; steps are updates. The data is of a controller with noise, from none in a fifth of the
episodes to so much in another that it hardly ever swings up.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro

import pytorchrl as prl
from pytorchrl.experiments import collect_demonstrations
from storages.datasets import open_dataset, return_of


@dataclass
class Arguments:
    """Hyper-parameters of the run."""

    env: str = "Pendulum-v1"
    """The environment of the data, which the policy is evaluated in; its actions are bounded."""
    data: Path | None = None
    """A data set to learn from; 50 episodes of a controller are recorded into the run folder where left out."""
    seed: int = 1
    """Seed of all random numbers of the run, and of the recorded episodes."""
    target_steps: int = 4_000
    """Updates to train for."""
    hidden_sizes: tuple[int, ...] = (128, 128)
    """Units of the hidden layers of all networks."""
    lr: float = 1e-3
    """Learning rate of all networks at the start; it falls to 0, so that the policy settles."""
    gamma: float = 0.99
    """Discount factor."""
    phi: float = 0.05
    """Largest perturbation of a generated action, in units of actions scaled to [-1, 1]."""
    latent_clip: float = 0.2
    """Clip range of the latents that actions are decoded from; a small one stays near the most frequent actions."""
    mini_batch_size: int = 256
    """Transitions in a minibatch."""
    test_every: int = 2_000
    """Updates between evaluations."""
    device: str = "cpu"
    """Device to compute on: cpu or cuda."""
    log_to: tuple[str, ...] = ()
    """Further writers of metrics: wandb, tensorboard."""
    log_dir: Path = Path("runs") / f"bcq-{time.strftime('%Y%m%d-%H%M%S')}"
    """The run folder; a new one under runs/ where left out."""


def controller(seed: int) -> Callable[[Any], Any]:
    """Make an energy controller that swings the pendulum up, with Gaussian noise that grows over environments."""
    random = np.random.default_rng(seed)

    def act(observation: Any) -> Any:
        cosine, sine, turning = observation.T
        missing_energy = 15 - (turning**2 / 2 + 15 * cosine)
        hold = -10 * np.arctan2(sine, cosine) - 2 * turning
        action = np.where(cosine > 0.9, hold, 0.5 * turning * missing_energy).clip(-2, 2)
        noise = random.normal(0, np.linspace(0, 4, len(action)))
        return (action + noise).clip(-2, 2)[:, None].astype(np.float32)

    return act


def data_of(arguments: Arguments) -> Path:
    """Return the path of the data set, which is recorded if it does not exist yet."""
    data = arguments.data or arguments.log_dir / "data.npz"
    if not data.exists():
        envs = prl.VecEnv.create_factory(arguments.env, num_envs=5)
        collect_demonstrations(controller(arguments.seed), envs, path=data, episodes=50, seed=arguments.seed)
    return data


def behaviour_return(arguments: Arguments) -> float:
    """Return the mean return of the data's episodes."""
    return float(np.mean([return_of(episode) for episode in open_dataset(data_of(arguments))]))


def compose(arguments: Arguments) -> prl.Scheme:
    """Make the scheme that learns from the data."""
    lr = prl.LinearSchedule(arguments.lr, 0.0)
    algorithm = prl.BCQ.create_factory(
        lr_vae=lr,
        lr_pi=lr,
        lr_q=lr,
        gamma=arguments.gamma,
        phi=arguments.phi,
        latent_clip=arguments.latent_clip,
        mini_batch_size=arguments.mini_batch_size,
        test_every=arguments.test_every,
    )
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=arguments.hidden_sizes)
    storage = prl.from_dataset(prl.ReplayBuffer.create_factory(size=100_000), data_of(arguments))
    envs = prl.VecEnv.create_factory(arguments.env, num_envs=10)
    return prl.Scheme(algorithm, actor, storage, test_envs_factory=envs, device=arguments.device, seed=arguments.seed)


def train(arguments: Arguments) -> prl.Learner:
    """Compose and train the run, and return its learner."""
    learner = prl.Learner(compose(arguments), arguments.target_steps, arguments.log_dir, log_to=arguments.log_to)
    learner.run()
    learner.close()
    return learner


if __name__ == "__main__":
    torch.set_num_threads(1)  # small networks run faster without a second thread
    chosen = tyro.cli(Arguments, description=__doc__)
    learner = train(chosen)
    learner.print_info()
    print(f"Mean return of the data: {behaviour_return(chosen):.1f}")
    print(f"Learning curve: {learner.curve_file}")
    print(f"Run folder:     {learner.log_dir}")
    print(f"Train further:  {learner.resume_command} --target-steps {2 * learner.target_steps}")
    if learner.was_interrupted:
        raise SystemExit(130)  # as commands do after Ctrl-C or SIGTERM: a job scheduler may run it again

"""Collectors in many processes: scaling where environments wait, and the cost of sending a transition.

The first table moves slices of 1,000 transitions of 17 floats, which are ready, from a collector's process into the
learner's storage, beside RLlib's episodes on their way from an environment runner. The second collects as many with a
random policy in environments that cost next to nothing, in another process, beside RLlib and torchrl. The third steps
environments that wait for five milliseconds, as a simulator elsewhere does, with one collector and with sixteen. Peers
that are not installed are left out. It takes some minutes. Run it from the root:
``python benchmarks/throughput/ray_scaling.py``.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from rich.console import Console

import pytorchrl as prl
from benchmarks.shared.rounds import Goal, Rounds, in_turn, machine
from benchmarks.throughput.kept_steps import SLICE, keep_episodes, kept_episodes, slice_of

WAIT_SECONDS = 0.005


class Cheap(gym.Env[Any, Any]):
    """Observes 17 floats; episodes have 200 steps, each of which waits for ``seconds``."""

    observation_space = spaces.Box(-1, 1, (17,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.steps = 0
        self.observation = np.zeros(17, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self.steps = 0
        return self.observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Wait for ``seconds``, and step."""
        if self.seconds:
            time.sleep(self.seconds)
        self.steps += 1
        return self.observation, 1.0, False, self.steps == 200, {}


def parts(seconds: float) -> dict[str, Any]:
    """Return the parts of a scheme that collects and never learns."""
    return {
        "algo_factory": prl.DQN.create_factory(start_steps=0, update_every=1_000_000_000, epsilon=1.0, test_every=0),
        "actor_factory": prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        "storage_factory": prl.ReplayBuffer.create_factory(size=100_000),
        "train_envs_factory": prl.VecEnv.create_factory(Cheap, env_kwargs={"seconds": seconds}, replay_on_resume=False),
    }


def transitions_per_second(scheme: prl.Scheme, seconds: float) -> float:
    """Return the transitions collected per second, after the first slices."""
    scheme.collect(scheme.steps + 1)
    before, started = scheme.steps, time.perf_counter()
    while time.perf_counter() - started < seconds:
        scheme.collect(scheme.steps + 1)
    return (scheme.steps - before) / (time.perf_counter() - started)


def scaling(rounds: int, seconds: float, collectors: int) -> Rounds:
    """Measure one and many collectors, synchronous and asynchronous."""
    schemes = {
        f"{number} {communication}": prl.RayScheme(
            **parts(WAIT_SECONDS),
            num_collectors=number,
            communication=communication,
            slice_steps=100,
            resources={"collector": {"num_cpus": 0.01}},
        )
        for communication in ("synchronous", "asynchronous")
        for number in (1, collectors)
    }
    work = {name: lambda scheme=scheme: transitions_per_second(scheme, seconds) for name, scheme in schemes.items()}
    found = Rounds(
        f"Environments that wait {1_000 * WAIT_SECONDS:g} ms in each step",
        "transitions a second",
        lambda figure: f"{figure:,.0f}",
        in_turn(work, rounds),
    )
    for communication, least in (("synchronous", 12), ("asynchronous", 14)):
        ratio = found.ratio(f"{collectors} {communication}", f"1 {communication}")
        target = f"{collectors} {communication} collectors collect at least {least} times what one does"
        found.goals.append(Goal(target, f"{ratio:.1f} times", ratio >= least))
    for scheme in schemes.values():
        scheme.close()
    return found


def ways(rounds: int, slices: int) -> tuple[Rounds, Rounds]:
    """Measure the microseconds of sending a transition to the learner, and of collecting and sending it."""
    remote = prl.RayScheme(**parts(0.0), slice_steps=SLICE, resources={"collector": {"num_cpus": 0.01}})
    remote.collect(remote.steps + 1)
    sent = {"pytorchrl": lambda: remote.storage.insert_data_slice(remote.ask_worker(0, slice_of))}
    collected: dict[str, Callable[[], Any]] = {"pytorchrl": lambda: remote.collect(remote.steps + 1)}
    closing: list[Callable[[], None]] = [remote.close]
    try:
        collected["RLlib"], sent["RLlib"], close = rllib()
        closing.append(close)
    except ImportError as error:
        print(f"RLlib is left out: {error}")
    try:
        collected["torchrl"], close = torchrl()
        closing.append(close)
    except ImportError as error:
        print(f"torchrl is left out: {error}")
    try:
        found = (
            _ways("on their way to the learner, ours into its storage", sent, rounds, slices),
            _ways("collected in another process, and received", collected, rounds, max(1, slices // 2)),
        )
    finally:
        # Python waits for the processes of torchrl at its end.
        for close in closing:
            close()
    ours = found[0].median("pytorchrl")
    found[0].goals.append(Goal("at most 3 microseconds a transition", f"{ours:.2f}", ours <= 3))
    for table in found:
        for name in table.rows.keys() - {"pytorchrl"}:
            ratio = table.ratio(name, "pytorchrl")
            table.goals.append(Goal(f"at least 3 times fewer than {name}", f"{ratio:.1f} times", ratio >= 3))
    return found


def _ways(what: str, work: Mapping[str, Callable[[], Any]], rounds: int, slices: int) -> Rounds:
    def measure(one: Callable[[], Any]) -> Callable[[], float]:
        return lambda: 1e6 * seconds_of(one, slices) / (slices * SLICE)

    return Rounds(
        f"Slices of {SLICE:,} transitions of 17 floats: {what}",
        "microseconds a transition",
        lambda figure: f"{figure:.2f}",
        in_turn({name: measure(one) for name, one in work.items()}, rounds),
    )


def torchrl() -> tuple[Callable[[], Any], Callable[[], None]]:
    """Collects as many transitions with torchrl's collector in a separate process."""
    from torchrl.collectors import MultiSyncCollector
    from torchrl.envs import GymWrapper

    collector = MultiSyncCollector([lambda: GymWrapper(Cheap())], policy=None, frames_per_batch=SLICE, total_frames=-1)
    batches = iter(collector)
    next(batches)
    return lambda: next(batches), collector.shutdown


def rllib() -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], None]]:
    """Collects as many transitions with RLlib's environment runner as an actor; sends those that it has."""
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
    from ray.tune.registry import register_env

    register_env("cheap", lambda config: Cheap())
    config = PPOConfig().environment("cheap").env_runners(rollout_fragment_length=SLICE, num_envs_per_env_runner=1)
    runner = ray.remote(SingleAgentEnvRunner).options(num_cpus=0.01).remote(config=config)
    ray.get(runner.__ray_call__.remote(keep_episodes))
    return (
        lambda: ray.get(runner.sample.remote(num_timesteps=SLICE, random_actions=True)),
        lambda: ray.get(runner.__ray_call__.remote(kept_episodes)),
        lambda: ray.kill(runner),
    )


def seconds_of(work: Callable[[], Any], times: int) -> float:
    """Return the seconds that a number of calls take."""
    started = time.perf_counter()
    for _ in range(times):
        work()
    return time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of collecting, in each round")
    parser.add_argument("--collectors", type=int, default=16)
    parser.add_argument("--only", choices=("ways", "scaling"), help="leave out the other table")
    parser.add_argument("--slices", type=int, default=20, help="sent in each round")
    options = parser.parse_args()
    import ray

    console = Console()
    console.print(machine("ray", "torchrl", "torch"), highlight=False)
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    if options.only != "scaling":
        for table in ways(options.rounds, options.slices):
            table.print(console)
    if options.only != "ways":
        scaling(options.rounds, options.seconds, options.collectors).print(console)
    ray.shutdown()


if __name__ == "__main__":
    main()

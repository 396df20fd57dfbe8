"""Processor time until 1,000 steps of CartPole are trained: the first run on a machine, later ones, stable-baselines3.

    python benchmarks/throughput/start_up.py [--repetitions 5] [--without-peer]

Each run is a separate process with one thread; the least of several repetitions counts, as other programs only add
to processor time. The first run compiles kernels, into a folder that is empty at its beginning.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS = 1_000
IMPORTS = {"import torch": "import torch", "import pytorchrl": "import pytorchrl"}
OURS = """
import sys, tempfile
import pytorchrl as prl

if sys.argv[1] == "DQN":
    algorithm = prl.DQN.create_factory(start_steps=100, mini_batch_size=32, update_every=4, test_every=0)
    actor, storage, num_envs = prl.OffPolicyActor, prl.ReplayBuffer.create_factory(size=50_000), 1
else:
    algorithm = prl.PPO.create_factory(num_epochs=4, test_every=0)
    actor, storage, num_envs = prl.OnPolicyActor, prl.GAEBuffer.create_factory(size=128), 8
envs = prl.VecEnv.create_factory("CartPole-v1", num_envs=num_envs)
scheme = prl.Scheme(algorithm, actor.create_factory(hidden_sizes=(64, 64)), storage, envs)
with tempfile.TemporaryDirectory() as folder, prl.Learner(scheme, int(sys.argv[2]), folder + "/run") as learner:
    while not learner.done():
        learner.step()
"""
PEERS = """
import sys
import torch
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env

torch.set_num_threads(1)
if sys.argv[1] == "DQN":
    envs = make_vec_env("CartPole-v1", 1)
    model = DQN("MlpPolicy", envs, learning_starts=100, batch_size=32, train_freq=4, buffer_size=50_000)
else:
    envs = make_vec_env("CartPole-v1", 8)
    model = PPO("MlpPolicy", envs, n_steps=128, n_epochs=4, batch_size=256)
model.learn(int(sys.argv[2]))
"""


def processor_seconds(script: str, *arguments: str, kernels: Path | None = None) -> float:
    """Run a script in a separate process; return the processor time of it and of the processes that it starts."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    if kernels is not None:
        environment["NUMBA_CACHE_DIR"] = str(kernels)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", script, *arguments], env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def least(repetitions: int, script: str, *arguments: str, kernels: Path | None = None) -> float:
    """Return the least processor time of several runs."""
    return min(processor_seconds(script, *arguments, kernels=kernels) for _ in range(repetitions))


def main() -> None:
    """Measure everything and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--without-peer", action="store_true", help="leave out stable-baselines3")
    options = parser.parse_args()
    count = options.repetitions
    for name, script in IMPORTS.items():
        print(f"{name}: {least(count, script):.2f} s", flush=True)
    for algorithm in ("DQN", "PPO"):
        arguments = (algorithm, str(STEPS))
        with tempfile.TemporaryDirectory() as folder:
            kernels = Path(folder)
            # Once only, as a compilation takes long enough for its noise to matter little.
            shown = [f"first {processor_seconds(OURS, *arguments, kernels=kernels):.1f} s"]
            shown.append(f"later {least(count, OURS, *arguments, kernels=kernels):.1f} s")
        if not options.without_peer:
            shown.append(f"stable-baselines3 {least(count, PEERS, *arguments):.1f} s")
        print(f"{algorithm}: {', '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()

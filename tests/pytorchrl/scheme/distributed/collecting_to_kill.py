"""A run with asynchronous collectors and replay shards on disk, for tests that kill its processes.

A script: ``python collecting_to_kill.py <folder>``. It starts or resumes the run, prints the number of committed
transitions after each commit, among the output of Ray, and never ends by itself.
"""

import sys
import warnings
from pathlib import Path
from typing import Any

import torch

import pytorchrl as prl
from tests.support.toys import Counter
from tests.support.training_to_kill import say, storage_of

COMMITTED = "committed: "
SHARDS, EPISODE_STEPS = 2, 30
STEPS_BETWEEN_COMMITS, COMMITS_OF_A_CHECKPOINT = 40, 3
STORAGE: dict[str, Any] = {
    "size": 100_000,
    "n_step": 2,
    "alpha": 0.6,
    "epsilon": 0.01,
    "default_error": "largest",
    "commit_every": 10,
}


def scheme(folder: Path) -> prl.RayScheme:
    return prl.RayScheme(
        prl.DQN.create_factory(start_steps=40, update_every=8, mini_batch_size=16, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.PERBuffer.create_factory(**STORAGE, directory=storage_of(folder)),
        prl.VecEnv.create_factory(Counter, num_envs=2, env_kwargs={"length": EPISODE_STEPS}),
        num_collectors=2,
        communication="asynchronous",
        slice_steps=4,
        num_replay_shards=SHARDS,
    )


def main(folder: Path) -> None:
    import ray  # not needed by modules that only read the constants above

    torch.set_num_threads(1)
    # Shards and collectors are killed on purpose, which causes warnings.
    warnings.simplefilter("ignore")
    ray.init(num_cpus=8, object_store_memory=100_000_000, include_dashboard=False, log_to_driver=False)
    if (folder / "checkpoint.pt").exists():
        learner = prl.Learner.resume(folder, scheme=scheme(folder))
    else:
        learner = prl.Learner(scheme(folder), 10_000_000, folder, log_every=1_000_000)
    storage, commits, due = learner.scheme.storage, 0, 0
    while True:
        learner.step()
        if learner.scheme.steps >= due:
            storage.flush()
            say(f"{COMMITTED}{len(storage)}")
            commits, due = commits + 1, learner.scheme.steps + STEPS_BETWEEN_COMMITS
            if commits % COMMITS_OF_A_CHECKPOINT == 0:
                learner.save_checkpoint()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""A run to be killed: starts or resumes in a folder, and prints its number of transitions after each step.

A script: ``python training_to_kill.py <case> <folder>``. It ends when its input does.
"""

import functools
import sys
from pathlib import Path
from typing import Any

import torch

import pytorchrl as prl

TARGET_STEPS, CHECKPOINT_EVERY = 1_200, 100
BEGINS = "begins"


class PrintsProgress(prl.Learner):
    """A learner that prints the number of collected transitions."""

    def step(self) -> None:
        super().step()
        say(self.scheme.steps)


def say(line: object) -> None:
    print(line, flush=True)  # noqa: T201


def storage_of(folder: Path) -> Path:
    return folder / "replay"


def scheme(case: str, folder: Path) -> prl.Scheme:
    algorithm, env, storage = CASES[case]
    memory: Any = {"memory": "gru", "memory_size": 16} if case in WITH_MEMORY else {}
    return prl.Scheme(
        algorithm(update_every=8, mini_batch_size=16, test_every=300, num_test_episodes=1),
        prl.OffPolicyActor.create_factory(hidden_sizes=(32,), **memory),
        storage(
            directory=storage_of(folder),
            alpha=0.6,
            beta=prl.LinearSchedule(0.4, 1.0),
            epsilon=0.01,
            default_error="largest",
            commit_every=10,
        ),
        prl.VecEnv.create_factory(env, num_envs=4, env_kwargs={"max_episode_steps": 70}),
    )


# Full after half of the run, so that later transitions overwrite the first ones.
_sequences = functools.partial(
    prl.PERBuffer.create_factory, size=TARGET_STEPS // 8, sequences=prl.Sequences(6, across_episodes=True)
)
_steps = functools.partial(prl.PERBuffer.create_factory, size=TARGET_STEPS // 8, n_step=3)
# More data than fits into memory, so that the episodes in memory are exchanged.
_episodes = functools.partial(prl.PersistentEpisodicBuffer.create_factory, size=None, memory_bytes=20_000, n_step=3)
_dqn = functools.partial(prl.DQN.create_factory, start_steps=40)
_dqn_later = functools.partial(prl.DQN.create_factory, start_steps=300)
_sac = functools.partial(prl.SAC.create_factory, start_steps=40, num_mini_batch=2)
_dreamer = functools.partial(
    prl.DreamerV3.create_factory, num_latents=4, num_classes=4, num_bins=41, horizon=3, start_steps=100
)
CASES: dict[str, tuple[Any, str, Any]] = {
    "SAC on Pendulum": (_sac, "Pendulum-v1", _steps),
    "DQN on CartPole": (_dqn, "CartPole-v1", _steps),
    "DQN of whole episodes": (_dqn_later, "CartPole-v1", _episodes),
    # Its updates replace the recurrent states stored with steps.
    "DreamerV3 on CartPole": (_dreamer, "CartPole-v1", _sequences),
}
WITH_MEMORY = ("DreamerV3 on CartPole",)


def main(case: str, folder: Path) -> None:
    torch.set_num_threads(1)
    say(BEGINS)
    if folder.exists():
        learner = PrintsProgress.resume(folder)
        learner.run()
    else:
        learner = PrintsProgress(scheme(case, folder), TARGET_STEPS, folder, log_every=50)
        learner.run(checkpoint_every=CHECKPOINT_EVERY)
    learner.close()
    say(TARGET_STEPS)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

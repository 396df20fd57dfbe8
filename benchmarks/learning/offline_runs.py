"""One offline run, ours or of d3rlpy, and the result that is kept of it."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

import pytorchrl as prl
from benchmarks.learning.offline_tasks import Compared, Kind, OfflineTask
from pytorchrl.experiments import RunFolder
from storages.datasets import normalised, open_dataset, references_of, return_of
from storages.files import write_atomically

Library = Literal["ours", "d3rlpy"]
LIBRARIES: Sequence[Library] = ("ours", "d3rlpy")
EPISODES = 20
_EVALUATIONS = 10


@dataclass(frozen=True)
class Finished:
    """Result of a finished run."""

    transitions: int
    """Number of transitions of its data."""
    data_score: float
    """Mean normalised return of its data's episodes."""
    updates: tuple[int, ...]
    scores: tuple[float, ...]
    """Normalised scores of the policy after each of those numbers of updates."""


@dataclass(frozen=True)
class Job:
    """A run of ours and of the peer."""

    task: OfflineTask
    kind: Kind
    compared: Compared
    seed: int
    updates: int
    folder: Path
    """Where data and runs are."""
    kept: Path
    """Where results of finished runs are kept as small files, without the run folders."""

    @property
    def data(self) -> Path:
        """The data set."""
        return self.folder / "data" / f"{self.task.env}-{self.kind}.npz"

    @property
    def name(self) -> str:
        """Name of all runs that differ only in their seed."""
        return f"{self.task.env}-{self.kind}-{self.compared.name}-{self.updates}-updates"

    def place(self, of: Library) -> Path:
        """The folder of the run."""
        return self.folder / of / self.name / f"seed-{self.seed}"

    def kept_file(self, of: Library) -> Path:
        """The file of the finished run."""
        return self.kept / f"{self.name}-{of}-{self.seed}.json"

    def finished(self, of: Library) -> Finished | None:
        """Return the result; None where the run has not finished."""
        file = self.kept_file(of)
        if not file.exists():
            return None
        saved = json.loads(file.read_text(encoding="utf-8"))
        return Finished(**saved | {name: tuple(saved[name]) for name in ("updates", "scores")})

    def run(self) -> None:
        """Train ours to the end, or resume it, unless it has finished.

        Raises:
            KeyboardInterrupt: the run was stopped, and saved a checkpoint.
        """
        if self.finished("ours") is None:
            self._make_data()
            self._keep("ours", self._train())

    def run_peer(self, interpreter: Path) -> None:
        """Let d3rlpy train, unless it has finished or has no such algorithm.

        Args:
            interpreter: a Python interpreter with d3rlpy.
        """
        if self.compared.peer is not None and self.finished("d3rlpy") is None:
            self._make_data()
            self._keep("d3rlpy", self._train_peer(interpreter))

    def _make_data(self) -> None:
        """Make the data set, or resume making it, unless it exists."""
        if not self.data.exists():
            prl.make_dataset(
                self.task.env,
                self.kind,
                self.data,
                transitions=self.task.transitions,
                train_steps=self.task.train_steps,
                runs=self.folder / "agents",
            )

    def _keep(self, of: Library, returns: Mapping[int, float]) -> None:
        """Write the result of a finished run, with returns by updates."""
        episodes = open_dataset(self.data)
        references = references_of(episodes.about)
        assert references is not None, "data that is made says its references"
        mean = float(np.mean([return_of(episode) for episode in episodes]))
        finished = Finished(
            episodes.steps,
            float(normalised([mean], references)[0]),
            tuple(returns),
            tuple(normalised(list(returns.values()), references).tolist()),
        )
        self.kept.mkdir(parents=True, exist_ok=True)
        write_atomically(self.kept_file(of), json.dumps(asdict(finished)).encode())

    @property
    def _test_every(self) -> int:
        return max(1, self.updates // _EVALUATIONS)

    def _train(self) -> dict[int, float]:
        """Returns by updates."""
        learner = self._learner()
        try:
            if not learner.done() and not learner.run(checkpoint_every=self._test_every):
                raise KeyboardInterrupt
        finally:
            learner.close()
        records = prl.read_metrics(self.place("ours") / "metrics.jsonl")
        return {int(record["steps"]): record["test/return"] for record in records if "test/return" in record}

    def _train_peer(self, interpreter: Path) -> dict[int, float]:
        """Returns by updates."""
        result = self.place("d3rlpy") / "result.json"
        if not result.exists():
            job = {
                "env": self.task.env,
                "data": str(self.data),
                "algorithm": self.compared.peer,
                "settings": dict(self.compared.theirs),
                "hidden_sizes": list(self.task.hidden_sizes),
                "seed": self.seed,
                "updates": self.updates,
                "test_every": self._test_every,
                "episodes": EPISODES,
                "result": str(result),
            }
            script = Path(__file__).with_name("peer_d3rlpy.py")
            command = [str(interpreter), str(script), json.dumps(job)]
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if done.returncode:
                raise RuntimeError(f"d3rlpy failed in {self.name}, seed {self.seed}:\n{done.stderr}")
        saved = json.loads(result.read_text(encoding="utf-8"))["returns"]
        return {int(updates): value for updates, value in saved.items()}

    def _learner(self) -> prl.Learner:
        chosen = {"test_every": self._test_every, "num_test_episodes": EPISODES}
        algorithm = getattr(prl, self.compared.name).create_factory(**self.compared.ours, **chosen)
        actor = prl.OffPolicyActor.create_factory(hidden_sizes=self.task.hidden_sizes, normalize_observations=True)
        storage = prl.ReplayBuffer.create_factory(size=open_dataset(self.data).steps)
        envs = prl.VecEnv.create_factory(self.task.env)
        filled = prl.from_dataset(storage, self.data)
        scheme = prl.Scheme(algorithm, actor, filled, test_envs_factory=envs, seed=self.seed)
        folder = self.place("ours")
        if RunFolder(folder).checkpoint_file.exists():
            return prl.Learner.resume(folder, scheme=scheme)
        return prl.Learner(scheme, self.updates, folder, log_every=self._test_every)

"""Tasks, the compositions that are trained in them, and the pages that show the results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytorchrl as prl
from pytorchrl.agent.algorithms.off_policy import Preset
from storages.component.factory import Factory


@dataclass(frozen=True)
class Composition:
    """The composition of an algorithm that is trained."""

    compose: Callable[[], Preset]
    num_envs: int = 1
    """Number of training environments."""
    threshold: float | None = None
    """Threshold instead of the task's."""
    wrappers: tuple[Any, ...] = ()
    """Wrappers of rewards, beside the task's."""
    callbacks: Callable[[], Sequence[prl.Callback]] = tuple
    """Makes the callbacks of a run."""


@dataclass(frozen=True)
class Task:
    """An environment, and the algorithms that are trained in it."""

    env: str
    target_steps: int
    seeds: tuple[int, ...]
    episodes: int
    """Episodes of the evaluation at the end of each run."""
    summary: Literal["mean", "median", "interval"]
    """Summary over the seeds; an interval is the mean with its standard error."""
    compositions: Mapping[str, Composition]
    peers: Mapping[str, str] = field(default_factory=dict)
    """Peers that are trained beside ours, and their packages."""
    peer_module: str = ""
    """Module beside this one, whose ``train_peer`` trains each peer."""
    threshold: float | None = None
    """Threshold of the summary."""
    settings: str = ""
    """Settings that all have in common, in words."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``gymnasium.make``."""
    package: str | None = None
    """Package that the environment needs."""
    wrappers: tuple[Any, ...] = ()
    """Wrappers of rewards; returns are of the unwrapped environment."""
    outer_wrappers: tuple[Any, ...] = ()
    """Wrappers around all others, in training and evaluation."""
    about: str = ""
    """What distinguishes it from other tasks of the page with the same environment."""
    on_request: bool = False
    """Whether only ``--only`` runs it; the page has it once one of its runs has finished."""

    @property
    def title(self) -> str:
        """Heading of its section."""
        return f"{self.env}: {self.about}" if self.about else self.env

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Names of our algorithms and the peers."""
        return *self.compositions, *self.peers

    def threshold_of(self, algorithm: str) -> float | None:
        """Return the threshold that the summary of an algorithm has to reach."""
        composition = self.compositions.get(algorithm)
        own = None if composition is None else composition.threshold
        return self.threshold if own is None else own

    def envs(self, num_envs: int, wrappers: tuple[Any, ...] = ()) -> Factory[prl.VecEnv]:
        """Return a factory of copies of the environment, with further wrappers."""
        layers = [*self.wrappers, *wrappers, *self.outer_wrappers]
        return prl.VecEnv.create_factory(self.env, num_envs=num_envs, env_kwargs=self.env_kwargs, wrappers=layers)


@dataclass(frozen=True)
class Page:
    """Tasks that a command runs, and a page in ``docs`` shows."""

    title: str
    target: str
    """Target of the Makefile."""
    compositions: str
    """The file with the settings, beside this one."""
    tasks: Mapping[str, Task]
    about: str = ""
    """What the page compares, in words."""
    baseline: str | None = None
    """Composition that is in all tasks, in units of whose mean return a table compares over all tasks."""

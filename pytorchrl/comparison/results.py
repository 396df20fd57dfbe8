"""What a comparison finds."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pytorchrl.comparison.improvement import Improvement
from pytorchrl.comparison.references import Reference
from pytorchrl.comparison.scores import RunScores, ScoreName
from pytorchrl.logging.bootstrap import Estimate, Floats


@dataclass(frozen=True)
class GroupResult:
    """What a group achieved in an environment, or in all of them."""

    name: str
    environment: str
    """Empty for all environments, whose scores are normalised."""
    runs: tuple[RunScores, ...]
    scores: Mapping[str, Floats]
    """What the statistics are of, by environment; of shape (runs,)."""
    iqm: Estimate
    """Interquartile mean."""
    mean: float
    median: float
    final: float
    """Mean over the runs, as of the next two."""
    last_ten: float
    best: float

    @property
    def seeds(self) -> str:
        """How many runs there are, in each environment."""
        counts = sorted({len(scores) for scores in self.scores.values()})
        return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"

    @property
    def steps(self) -> float:
        """Mean over the runs."""
        return float(np.mean([run.steps for run in self.runs]))

    @property
    def seconds(self) -> float:
        """Mean over the runs; NaN where they are not known."""
        return float(np.mean([run.seconds for run in self.runs]))


@dataclass(frozen=True)
class Comparison:
    """Groups of runs, compared."""

    metric: str
    score: ScoreName
    """Of which measurement of each run the statistics are."""
    baseline: str
    results: tuple[GroupResult, ...]
    """Of each group in each environment."""
    overall: tuple[GroupResult, ...]
    """Over all environments, by normalised scores, of the groups that have runs in all; empty where there is one."""
    references: tuple[Reference, ...]
    """By which scores are normalised."""
    improvements: tuple[Improvement, ...]
    """Of the other groups over the baseline."""
    notes: tuple[str, ...]
    """What a reader of the numbers must know."""

    @property
    def environments(self) -> list[str]:
        """Their names, each once."""
        return list(dict.fromkeys(result.environment for result in self.results))

    @property
    def main(self) -> tuple[GroupResult, ...]:
        """The results over all environments, or of the one there is."""
        return self.overall if len(self.environments) > 1 else self.results

    def of(self, environment: str) -> list[GroupResult]:
        """The results in an environment."""
        return [result for result in self.results if result.environment == environment]

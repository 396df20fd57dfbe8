"""Results of a comparison."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pytorchrl.comparison.improvement import Improvement
from pytorchrl.comparison.references import Reference
from pytorchrl.comparison.scores import RunScores, ScoreName
from pytorchrl.logging.bootstrap import Estimate, Floats


@dataclass(frozen=True)
class GroupResult:
    """Scores of a group in an environment, or in all of them."""

    name: str
    environment: str
    """Empty for all environments, whose scores are normalised."""
    runs: tuple[RunScores, ...]
    scores: Mapping[str, Floats]
    """The scores that the statistics are computed from, by environment; of shape (runs,)."""
    iqm: Estimate
    """Interquartile mean; its interval is NaN for a single seed, and where all seeds score the same."""
    mean: float
    median: float
    final: float
    """Mean over the runs, like the next two; environments count alike in each of these statistics."""
    last_ten: float
    best: float

    @property
    def seeds(self) -> str:
        """Number of runs in each environment, as text."""
        counts = sorted({len(scores) for scores in self.scores.values()})
        return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"

    @property
    def std(self) -> float:
        """Sample standard deviation of the scores over the runs; NaN for a single run, and over environments."""
        if len(self.scores) != 1 or len(self.runs) < 2:
            return float("nan")
        (scores,) = self.scores.values()
        return float(np.std(scores, ddof=1))

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
    """The measurement of each run that the statistics are computed from."""
    baseline: str
    results: tuple[GroupResult, ...]
    """Of each group in each environment."""
    overall: tuple[GroupResult, ...]
    """Normalised results over all environments, of the groups with runs in all; empty for a single environment."""
    references: tuple[Reference, ...]
    """Returns by which scores are normalised."""
    improvements: tuple[Improvement, ...]
    """Improvements of the other groups over the baseline."""
    notes: tuple[str, ...]
    """Notes on the scores and intervals."""
    answer: str = ""
    """Which group has the highest interquartile mean, and how sure it is that it is better, in a few sentences."""

    @property
    def environments(self) -> list[str]:
        """Names of the environments, each once."""
        return list(dict.fromkeys(result.environment for result in self.results))

    @property
    def main(self) -> tuple[GroupResult, ...]:
        """The results over all environments, or in the only one."""
        return self.overall if len(self.environments) > 1 else self.results

    def of(self, environment: str) -> list[GroupResult]:
        """The results in an environment."""
        return [result for result in self.results if result.environment == environment]

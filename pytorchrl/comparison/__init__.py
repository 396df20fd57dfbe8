"""Statistical comparison of groups of runs over several seeds: statistics, tables and plots."""

from pytorchrl.comparison.comparison import compare_groups, compare_runs
from pytorchrl.comparison.improvement import Improvement, seeds_needed
from pytorchrl.comparison.pictures import draw_comparison, draw_profile
from pytorchrl.comparison.references import Reference
from pytorchrl.comparison.results import Comparison, GroupResult
from pytorchrl.comparison.scores import RunScores

__all__ = [
    "Comparison",
    "GroupResult",
    "Improvement",
    "Reference",
    "RunScores",
    "compare_groups",
    "compare_runs",
    "draw_comparison",
    "draw_profile",
    "seeds_needed",
]

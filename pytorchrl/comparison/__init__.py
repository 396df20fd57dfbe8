"""Statistical comparison of groups of runs over several seeds: statistics, tables and plots."""

from pytorchrl.comparison.comparison import compare_groups, compare_runs
from pytorchrl.comparison.improvement import Improvement, seeds_needed
from pytorchrl.comparison.pictures import comparison_axes, draw_comparison
from pytorchrl.comparison.profiles import draw_profile, profile_axes
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
    "comparison_axes",
    "draw_comparison",
    "draw_profile",
    "profile_axes",
    "seeds_needed",
]

"""Sections of ``docs/atari-100k.md``: human-normalised scores over all games, their distribution, and each game's."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.learning.atari_100k import DER, DRQ, GAMES
from benchmarks.learning.learning_runs import Run, returns_of
from benchmarks.shared.page_texts import paragraphs
from pytorchrl.comparison.profiles import performance_profile
from pytorchrl.logging.bootstrap import estimate, value_of

Scores = Mapping[str, Sequence[float]]
"""Scores of finished runs, by the name of the game."""

_PUBLISHED_IQM = {DER: 0.183, DRQ: 0.280, "SPR": 0.337}
"""Interquartile means over 26 games, Agarwal et al. (arXiv 2108.13264)."""
HOW = (
    "A score is the mean over 100 whole games, with all lives and the game's own rewards, of the greedy policy that a "
    "run ended with, in environments seeded apart from training. Settings that are not named here are those of "
    "`benchmarks/learning/atari_100k.py`."
)
"""How scores are measured."""
_PICTURE = "atari-100k-profile.png"
_MAX_SHOWN = 2.0
"""Largest human-normalised score in the picture."""


def sections(by_task: Mapping[str, Sequence[Run]], docs: Path) -> list[str]:
    """Return the lines of the page behind its introduction, and draw its picture.

    Args:
        by_task: runs of each task.
        docs: folder of the picture.
    """
    scores = {name: _scores(by_task, name) for name in (DER, DRQ)}
    seeds = sorted({run.seed for runs in by_task.values() for run in runs if run.result is not None}) or [1]
    lines = ["## All games", "", *paragraphs(_how_normalised()), "", *_over_all_games(scores), ""]
    if any(len(found) > 1 for found in scores.values()):
        draw_profiles(scores, docs / _PICTURE)
        lines += [f"![Share of runs whose human-normalised score is larger than a score]({_PICTURE})", ""]
    return [*lines, "## Each game", "", *_each_game(by_task, seeds), ""]


def _scores(by_task: Mapping[str, Sequence[Run]], algorithm: str) -> dict[str, list[float]]:
    return {game: found for game in GAMES if (found := returns_of(by_task[game.lower()], algorithm))}


def _published(games: Iterable[str]) -> Scores:
    return {game: [GAMES[game].data_efficient_rainbow] for game in games}


def _how_normalised() -> str:
    published = ", ".join(f"{name} {value:.3f}" for name, value in _PUBLISHED_IQM.items())
    return (
        "Human-normalised scores have 0 for random actions and 1 for the human of Wang et al. (arXiv 1511.06581). The "
        "mean and the median are over games, the interquartile mean (IQM) over all runs, with the 95% interval of a "
        "bootstrap that draws runs within each game where each has two. The rows of van Hasselt et al. are their "
        "published scores in the games that have finished here. Interquartile means that Agarwal et al. (arXiv "
        f"2108.13264) publish over all games: {published}."
    )


def _over_all_games(scores: Mapping[str, Scores]) -> list[str]:
    rows = [["algorithm", "games", "runs", "IQM", "95% interval", "median", "mean"], ["---", *["---:"] * 6]]
    for name, of_games in scores.items():
        if not of_games:
            rows.append([name, "0", "0", "-", "-", "-", "-"])
            continue
        normalised = [*normalised_scores(of_games).values()]
        found = estimate(normalised)
        interval = f"{found.low:.3f} to {found.high:.3f}" if found.has_interval else "-"
        runs = sum(map(len, of_games.values()))
        rows.append([name, str(len(of_games)), str(runs), f"{found.value:.3f}", interval, *_averages(normalised)])
    if finished := scores[DER]:
        theirs = [*normalised_scores(_published(finished)).values()]
        row = [f"{DER}, van Hasselt et al.", str(len(finished)), "-", f"{value_of(theirs, 'iqm'):.3f}", "-"]
        rows.append([*row, *_averages(theirs)])
    return [f"| {' | '.join(row)} |" for row in rows]


def normalised_scores(scores: Scores) -> dict[str, NDArray[np.float64]]:
    """Return the human-normalised scores of each game, of shape (runs,)."""
    return {game: np.array([GAMES[game].normalised(score) for score in of_runs]) for game, of_runs in scores.items()}


def _averages(normalised: Sequence[NDArray[np.float64]]) -> list[str]:
    means = [float(np.mean(of_game)) for of_game in normalised]
    return [f"{np.median(means):.3f}", f"{np.mean(means):.3f}"]


def _each_game(by_task: Mapping[str, Sequence[Run]], seeds: Sequence[int]) -> list[str]:
    several = len(seeds) > 1
    of_seeds = [f"{name}, seed {seed}" if several else name for name in (DER, DRQ) for seed in seeds]
    header = ["game", "random", "human", f"{DER}, published", *of_seeds]
    rows = [header, ["---", *["---:"] * (len(header) - 1)]]
    for game, published in GAMES.items():
        found = {(run.algorithm, run.seed): run.result for run in by_task[game.lower()]}
        row = [game, *map(_shown, (published.random, published.human, published.data_efficient_rainbow))]
        for key in ((name, seed) for name in (DER, DRQ) for seed in seeds):
            result = found.get(key)
            row.append(_shown(result.greedy_return) if result is not None else "missing" if key in found else "-")
        rows.append(row)
    return [f"| {' | '.join(row)} |" for row in rows]


def _shown(score: float) -> str:
    return f"{score:,.1f}"


def draw_profiles(scores: Mapping[str, Scores], output: Path) -> None:
    """Draw the share of runs whose human-normalised score is larger than each score into a PNG file.

    Games count alike.

    Args:
        scores: of each algorithm; one without any is left out.
        output: the file.
    """
    figure = Figure(figsize=(8, 4.5), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    points = np.linspace(0, _MAX_SHOWN, 201)
    for name, of_games in scores.items():
        if of_games:
            shares, *_ = performance_profile(normalised_scores(of_games), points)
            axes.step(points, shares, where="post", label=f"{name} ({len(of_games)} games)")
    if finished := scores[DER]:
        shares, *_ = performance_profile(normalised_scores(_published(finished)), points)
        axes.step(points, shares, "--", color="grey", where="post", label="van Hasselt et al.")
    axes.set_xlabel("human-normalised score")
    axes.set_ylabel("share of runs with a larger score")
    axes.set_xlim(0, _MAX_SHOWN)
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(output, format="png")

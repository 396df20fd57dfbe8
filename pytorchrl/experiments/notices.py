"""Messages about how a run begins or is resumed, which its learner prints."""

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces

from pytorchrl.agent.algorithms.update_plan import EveryTransitions
from pytorchrl.experiments.callbacks import TrainingRun
from pytorchrl.experiments.policies.fitted_q import needs_history
from pytorchrl.experiments.recordings.filming import can_render
from pytorchrl.experiments.runs import storage_owner, storage_paths
from pytorchrl.logging.groups import changes_by_hand
from pytorchrl.scheme.scheme import Scheme
from pytorchrl.terminal import tell

_SILENT_RECORDS = 5
"""Log records without any loss that need no explanation."""
_SMALL = 50_000
"""Parameters of networks whose products are too small to be divided among threads."""
_MATRIX = 2
"""Dimensions of a layer's weights; convolutions have more, and gain from threads."""


def report_stored_transitions(scheme: Scheme, folder: Path) -> None:
    """Print that a new run's storage on disk is not empty, which is meant by some and overlooked by others."""
    storage = scheme.config["storage"]
    directory = storage_paths.directories_of(scheme.config).get("main")
    if directory is None or "dataset" in storage or scheme.steps or not (stored := len(scheme.storage)):
        return
    owner = storage_owner.owners(scheme.config, folder).get(Path(directory).resolve())
    taken = (
        "" if owner is None else f" The storage was that of the run in {owner}, which cannot be resumed with it now."
    )
    tell(
        f"{storage['name']}: {directory} holds {stored:,} transitions already, from which this run learns, too; "
        f"another directory begins an empty storage.{taken}"
    )


def report_unconstrained_learning(scheme: Scheme) -> None:
    """Print that a new run learns from data alone by an algorithm that overestimates actions which these lack."""
    algorithm = scheme.algorithm
    if scheme.config["train_envs"] is not None or scheme.steps or algorithm.constrained_to_data:
        return
    if isinstance(algorithm.action_space, spaces.Box):
        made_for_data = "TD3BC, IQL or CQL"
    else:
        made_for_data = "DiscreteBCQ or DiscreteCQL"
    tell(
        f"Warning: {type(algorithm).__name__} learns from data alone here, and overestimates actions that the data "
        f"lack: the policy is often worse than before, or than that of the data. {made_for_data} keeps to the data; or "
        f"collect beside them (train --online)."
    )


def report_rewards_of_several_scales(scheme: Scheme) -> None:
    """Print that a replay of a new run will hold rewards that were divided by different deviations."""
    kind = scheme.config["normalize_rewards"]
    if kind is None or scheme.steps or scheme.storage.on_policy:
        return
    directory = storage_paths.directories_of(scheme.config).get("main")
    on_disk = f", and {directory} will hold them instead of the environment's" if directory else ""
    tell(
        f"Warning: {scheme.config['storage']['name']} keeps rewards as they were divided when they were collected; "
        f"with normalize_rewards={kind!r} the divisor changes, so that older ones have another scale{on_disk}. A fixed "
        f'scale is better for replay: wrappers=[("ScaleReward", {{"factor": 0.1}})] of the environments.'
    )


def report_changes_not_repeated(folder: Path, config: Mapping[str, Any]) -> None:
    """Say which hyper-parameters of a run were changed by hand, where another begins with its configuration."""
    if changes := changes_by_hand(config):
        made = ", ".join(f"{name}={value}" for name, value in changes.items())
        tell(f"{folder} was changed by hand, to {made}; the new run keeps the values that it began with.")


def report_threads(scheme: Scheme) -> None:
    """Print, once in a process, that small networks are trained on the CPU with several threads."""
    threads, parameters = torch.get_num_threads(), [*scheme.actor.parameters()]
    is_small = sum(one.numel() for one in parameters) <= _SMALL and all(one.dim() <= _MATRIX for one in parameters)
    if threads > 1 and is_small and torch.device(scheme.device).type == "cpu":
        _tell_once(
            f"torch computes with {threads} threads; networks as small as these usually train faster with one, on a "
            f"busy machine many times: torch.set_num_threads(1), or OMP_NUM_THREADS=1 before the command."
        )


@functools.cache
def _tell_once(message: str) -> None:
    tell(message)


def first_update(scheme: Scheme) -> int | None:
    """Return the environment transitions before the first update, where these are still to be made."""
    plan = scheme.algorithm.plan
    if scheme.envs is None or getattr(scheme.storage, "rate_limiter", None) or not isinstance(plan, EveryTransitions):
        return None
    return plan.start if scheme.steps < plan.start else None


def of_first_update(scheme: Scheme, target_steps: int, log_every: int) -> str | None:
    """Return that a run makes no update, or begins with many steps in which it learns nothing; None otherwise."""
    start, name = first_update(scheme), scheme.config["algorithm"]["name"]
    if start is None or (start < target_steps and start <= _SILENT_RECORDS * log_every):
        return None
    if start >= target_steps:
        return (
            f"{name}: no update will be made in this run of {target_steps:,} steps, as start_steps={start:,} come "
            f"before the first; choose fewer, or a larger target_steps."
        )
    return (
        f"{name}: the first update is made after start_steps={start:,} of {target_steps:,} steps; until then, only the "
        f"storage is filled."
    )


def of_progress(scheme: Scheme, target_steps: int, metrics: Mapping[str, float]) -> str:
    """Return the progress of a run and its latest returns, in one line."""
    shown = [f"{scheme.steps:,} of {target_steps:,} {scheme.unit}"]
    if (start := first_update(scheme)) is not None:
        shown.append(f"first update after {start:,}")
    for name, label in (("train/return", "train return"), ("test/return", "test return")):
        if name in metrics:
            shown.append(f"{label} {metrics[name]:.1f}")
    if "speed/steps_per_second" in metrics:
        shown.append(f"{metrics['speed/steps_per_second']:,.0f} {scheme.unit}/s")
    return " | ".join(shown)


def tell_end(run: TrainingRun, best_return: float, next_commands: Mapping[str, str]) -> None:
    """Print where a complete run is, its best and last returns, and what can be done with it.

    Args:
        run: the run.
        best_return: largest mean return of an evaluation; minus infinity before the first.
        next_commands: commands by what they do.
    """
    metrics = run.get_metrics()
    shown = [f"Finished {run.scheme.steps:,} {run.scheme.unit}, saved in {run.log_dir}"]
    if math.isfinite(best_return):
        last = f", the last {metrics['test/return']:.1f}" if "test/return" in metrics else ""
        shown.append(f"best evaluation: return {best_return:.1f}{last}")
    elif "train/return" in metrics:
        shown.append(f"last return in training: {metrics['train/return']:.1f}")
    tell("; ".join(shown))
    can_evaluate, has_returns = run.scheme.can_evaluate, bool({"test/return", "train/return"} & metrics.keys())
    for purpose, command in next_commands.items():
        if purpose == "play" and (run.scheme.test_envs_factory is None or not can_render(run.scheme.test_envs_factory)):
            continue
        if purpose == "evaluate" and (can_evaluate or needs_history(run.scheme.algorithm)):
            continue
        # A run without returns is plotted by what it has logged.
        drawn = "" if purpose != "plot" or has_returns or can_evaluate else _metric_of_data(metrics)
        tell(f"  {purpose}: {command}{drawn}")


def _metric_of_data(metrics: Mapping[str, Any]) -> str:
    """Return the option of `plot` that names an evaluation on data, or a loss; "" where none is logged."""
    name = next((name for kind in ("offline/", "losses/") for name in metrics if name.startswith(kind)), None)
    return "" if name is None else f" --metric {name}"


def of_early_end(scheme: Scheme, target_steps: int, stop_reason: str | None) -> str:
    """Return where a run was stopped, and why."""
    at = f"at {scheme.steps:,} of {target_steps:,} {scheme.unit}"
    reason = "" if stop_reason is None else f", because {stop_reason}"
    return f"Stopped {at if scheme.steps < target_steps else 'in the last evaluation'}{reason}"


def report_cut_episodes(run: TrainingRun, envs: Sequence[int]) -> None:
    """Print and log that the running episodes of environments are lost in a resumed run, if there are such."""
    of_scheme = run.scheme.envs
    if not envs or of_scheme is None:
        return
    # The environments of the processes of a HogwildScheme are more than those that it describes.
    among = max(of_scheme.num_envs, max(envs) + 1)
    tell(
        f"{len(envs)} of {among} environments could not be restored (number "
        f"{', '.join(map(str, envs))}): the last observation was not reproduced. Their running episodes count as "
        f"truncated, and new ones begin."
    )
    run.log({"train/episodes_cut_by_resume": float(len(envs))})


def report_lost_metrics(file: Path, records: Sequence[Mapping[str, float]], latest: Mapping[str, float]) -> None:
    """Print that a resumed run lacks metrics that it has logged, if some are missing.

    Args:
        file: of the metrics.
        records: those that are in it.
        latest: the newest value of each metric when the checkpoint was saved, and "steps".
    """
    logged, kept = latest.get("steps", 0), max((record.get("steps", 0) for record in records), default=None)
    if not latest or (kept is not None and kept >= logged):
        return
    left = "no metrics" if kept is None else f"metrics up to step {kept:,.0f}"
    tell(
        f"{file} {'has' if file.exists() else 'does not exist: there are'} {left}, although the run has logged some up "
        f"to step {logged:,.0f}; curves, comparisons and reports lack what is missing, unless the file is restored "
        f"before the run goes on."
    )

"""Commands for runs that are there: list them, evaluate their policies, film them, export them."""

from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from pytorchrl.agent.envs import VecEnv
from pytorchrl.experiments import load_policy
from pytorchrl.experiments.checkpoint import CheckpointError
from pytorchrl.experiments.composition import load_agent, made_of, refuse_to_import
from pytorchrl.experiments.filming import film
from pytorchrl.experiments.run_folder import RunFolder
from pytorchrl.experiments.video import refuse_missing_encoder, write_video
from pytorchrl.logging import read_evaluations, read_metrics
from pytorchrl.logging.evaluation_table import as_csv, as_markdown
from pytorchrl.scheme.evaluation import MAX_EPISODE_STEPS
from pytorchrl.scheme.evaluation import evaluate as evaluation_of
from storages.component.factory import Factory

Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


def ls(path: tyro.conf.Positional[Path] = Path("runs")) -> None:
    """List the runs in a folder and all folders below it, with the mean returns of training and evaluation.

    Args:
        path: where to look.
    """
    folders = sorted(file.parent for file in path.glob("**/config.json") if (file.parent / "versions.json").exists())
    if not folders:
        print(f"There is no run in {path}.")
        return
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    # A long name is folded, and nothing else is.
    table.add_column("run", overflow="fold")
    for column in ("algorithm", "environment", "seed", "steps", "train", "test"):
        table.add_column(column, justify="left" if column in ("algorithm", "environment") else "right", no_wrap=True)
    for folder in folders:
        table.add_row(*_row(folder, path))
    Console().print(table)


def evaluations(run: Run, output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None) -> None:
    """Show all evaluations of a run.

    Args:
        run: the run folder.
        output: a file that ends in .csv, or in .md; the terminal where left out.
    """
    rows = read_evaluations(run)
    if output is None:
        print(as_markdown(rows))
        return
    if output.suffix not in (".csv", ".md"):
        raise ValueError(f"evaluations are written to a file that ends in .csv or .md, got {output}")
    output.write_text(as_csv(rows) if output.suffix == ".csv" else as_markdown(rows) + "\n")
    print(output)


def evaluate(run: Run, episodes: int = 20, seed: int = 0, explore: bool = False) -> None:
    """Evaluate the policy of a run's last checkpoint.

    Args:
        run: the run folder.
        episodes: how many.
        seed: of the environments.
        explore: choose actions as the explorer does at the run's end, instead of the best ones.
    """
    algorithm, envs = load_agent(run)
    try:
        progress = (algorithm.steps, algorithm.target_steps) if explore else None
        result = evaluation_of(algorithm, envs, episodes, seed, MAX_EPISODE_STEPS, explore_at=progress)
    finally:
        envs.close()
    returns = result.returns
    print(
        f"{episodes} episodes: mean return {np.mean(returns):.2f}, standard deviation {np.std(returns):.2f}, median "
        f"{np.median(returns):.2f}, from {min(returns):.2f} to {max(returns):.2f}; mean length "
        f"{np.mean(result.lengths):.1f}"
    )


def record(
    run: Run,
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("video.mp4"),
    episodes: int = 1,
    longest: int = 1_000,
    seed: int = 0,
) -> None:
    """Film the policy of a run's last checkpoint.

    Args:
        run: the run folder.
        output: the video, which ends in .mp4 or .gif.
        episodes: of the video.
        longest: steps that an episode is filmed for at most.
        seed: of the environment.
    """
    refuse_missing_encoder(output.suffix)
    algorithm, envs = load_agent(run)
    envs.close()
    frames, frames_per_second = film(algorithm, _envs_of(run), episodes, longest, np.random.SeedSequence(seed))
    print(write_video(output, frames, frames_per_second))


def export(run: Run, output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("policy.onnx")) -> None:
    """Write the network that acts, for use without this toolkit.

    Args:
        run: the run folder, or a file of weights.
        output: ends in .onnx, or in .pt2 for torch.export.load.
    """
    print(load_policy(run).export(output))


def _envs_of(run: Path) -> Factory[VecEnv]:
    config = RunFolder(run).read_config()
    described = config["test_envs"] or config["train_envs"]
    refuse_to_import(described, "film it in a script by RecordVideos")
    factory: Factory[VecEnv] = made_of(described)
    return factory


def _row(folder: Path, path: Path) -> list[str]:
    name = str(folder.relative_to(path))
    try:
        config = RunFolder(folder).read_config()
        metrics: dict[str, float] = {}
        if (folder / "metrics.jsonl").exists():
            for record in read_metrics(folder / "metrics.jsonl"):
                metrics |= record
    except (CheckpointError, OSError, ValueError) as error:
        return [name, f"cannot be read: {error}"]
    env = ((config["train_envs"] or config["test_envs"] or {}).get("hyper_parameters") or {}).get("env", "")
    return [
        name,
        str(config["algorithm"]["name"]),
        env if isinstance(env, str) else str(env),
        str(config["seed"]),
        f"{metrics.get('steps', 0):,.0f} of {config['target_steps']:,}",
        *(f"{metrics[key]:.1f}" if key in metrics else "" for key in ("train/return", "test/return")),
    ]

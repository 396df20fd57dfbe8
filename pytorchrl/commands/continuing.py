"""Commands that continue a run, or repeat it with another seed."""

from pathlib import Path
from typing import Annotated

import tyro

from pytorchrl.commands.shared import STOPPED, DataSets, Imports, Run, check_counts, check_seed
from pytorchrl.experiments.runs.user_modules import import_modules
from pytorchrl.learner import Learner
from pytorchrl.terminal import tell


def resume(
    run: Run,
    target_steps: int | None = None,
    checkpoint_every: int | None = None,
    data: DataSets = (),
    imports: Imports = (),
) -> None:
    """Continue a run from its last checkpoint.

    Args:
        run: the run folder.
        target_steps: a new target, in environment transitions (updates, of a run that collects none); the old one where
            left out.
        checkpoint_every: steps between checkpoints; as before where left out.
        data: the data sets that the run learns from, in the order of its configuration; they may have moved.
        imports: modules to import first.
    """
    check_counts(checkpoint_every=checkpoint_every)
    import_modules(imports)
    _finish(Learner.resume(run, target_steps=target_steps, data=data), checkpoint_every)


def repeat(
    run: Run,
    log_dir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")],
    seed: int | None = None,
    target_steps: int | None = None,
    device: str | None = None,
    data: DataSets = (),
    imports: Imports = (),
) -> None:
    """Train a new run with the configuration of another, such as with another seed.

    Args:
        run: the run folder; only its config.json is read.
        log_dir: the folder of the new run.
        seed: of the new run; the old one's where left out, as for what follows.
        target_steps: its number of environment transitions (updates, of a run that collects none).
        device: cpu, cuda or auto.
        data: the data sets that the run learns from, in the order of its configuration; they may have moved.
        imports: modules to import first.
    """
    import_modules(imports)
    if seed is not None:
        check_seed(seed)
    _finish(Learner.repeat(run, log_dir, seed=seed, target_steps=target_steps, device=device, data=data))


def _finish(learner: Learner, checkpoint_every: int | None = None) -> None:
    """Train until the target, and print the results."""
    with learner:
        learner.run(checkpoint_every=checkpoint_every)
        if learner.is_complete:
            learner.print_info()
            if learner.curve_file.is_file():
                tell(f"Learning curve: {learner.curve_file}")
        if learner.was_interrupted:
            raise SystemExit(STOPPED)

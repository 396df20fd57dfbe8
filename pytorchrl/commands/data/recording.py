"""Commands that record data sets, of the agent of a run or of agents trained for the purpose."""

from pathlib import Path
from typing import Annotated

import tyro

from pytorchrl.commands.data.making import Kind, make_dataset
from pytorchrl.commands.data.shared import Count, Format, Output, tell_written
from pytorchrl.commands.shared import Imports, check_seed
from pytorchrl.experiments import collect_demonstrations
from pytorchrl.experiments.runs.user_modules import import_modules


def make(
    env: Annotated[str, tyro.conf.arg(metavar="ID")],
    kind: Kind,
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="OUTPUT", help_behavior_hint="")] = None,
    algorithm: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None,
    transitions: int = 100_000,
    train_steps: Count = None,
    seed: int = 0,
    runs: Path = Path("runs/data"),
    format: Format = None,  # noqa: A002
    imports: Imports = (),
) -> None:
    """Make a data set of an environment: train an agent where the kind needs one, and record its episodes.

    The same command goes on where it was stopped, and makes the same data everywhere. All kinds of an environment
    share the agent, which is trained once.

    Args:
        env: a gymnasium id.
        kind: random: uniform actions; expert: the policy of the best evaluation; medium: that of a third of the
            expert's return, on a scale on which random actions are 0 and the expert is 1; medium-replay: all that
            training had stored when the policy was medium; mixed: half medium, half expert.
        output: what is written: a folder for Minari's formats, or a file that ends in .npz; ENV-KIND.npz where left
            out.
        algorithm: of the agent; SAC where actions are a Box, DQN where they are Discrete.
        transitions: how many to record at least, whole episodes; medium-replay has as many as training had.
        train_steps: environment transitions to train for; those of the preset where left out, else 1,000,000 in a Box
            of actions and 100,000 in others.
        seed: all randomness follows from it.
        runs: where agents are trained.
        format: of the output; npz where its name ends in .npz, else minari-hdf5.
        imports: a module of yours.
    """
    check_seed(seed)
    import_modules(imports)
    tell_written(
        make_dataset(
            env,
            kind,
            output,
            algorithm=algorithm,
            transitions=transitions,
            train_steps=train_steps,
            seed=seed,
            runs=runs,
            format=format,
        )
    )


def collect(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    output: Output,
    episodes: Count = None,
    steps: Count = None,
    seed: int = 0,
    explore: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    format: Format = None,  # noqa: A002
) -> None:
    """Record episodes of the agent of a run's last checkpoint.

    Args:
        run: the run folder.
        output: what is written: a folder for Minari's formats, or a file that ends in .npz; must not exist.
        episodes: how many to record.
        steps: environment transitions to record instead, the running episode included.
        seed: all randomness follows from it.
        explore: act as in training, with exploration, instead of greedily.
        format: of the output; npz where its name ends in .npz, else minari-hdf5.
    """
    check_seed(seed)
    tell_written(
        collect_demonstrations(
            run, path=output, steps=steps, episodes=episodes, seed=seed, deterministic=not explore, format=format
        )
    )

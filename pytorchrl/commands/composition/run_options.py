"""The options of `train` and `sweep`: of the run, and of the classes that it is composed of."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytorchrl.agent.actors import Actor
from pytorchrl.agent.algorithms import Algorithm
from pytorchrl.agent.envs import VecEnv
from pytorchrl.commands.composition.data_source import DATA_SETTINGS
from pytorchrl.commands.composition.description import whole_number
from pytorchrl.commands.composition.options import PartsParser, add_options
from pytorchrl.commands.composition.parts import actor_for, names_of, part_named, storage_class
from pytorchrl.logging.writers import LOGGERS
from storages.storage import Storage

_USAGES = {
    "train": "%(prog)s --algorithm NAME --env ID [options]; with a NAME, --help shows its options",
    "sweep": "%(prog)s --algorithm NAME --env ID --vary NAME VALUES... [options of train]",
}
"""By the command that the arguments are of."""
FILE_SETTINGS = (
    "seeds",
    "device",
    "test_seed",
    "normalize_rewards",
    "log_dir",
    "log_to",
    "checkpoint_every",
    "callbacks",
    "from",
    *DATA_SETTINGS,
)
_EPILOG = (
    "Values are written as in Python: numbers, words, lists such as 64,64, and settings such as "
    "'LinearSchedule(1e-3, 0)', 'Adam(eps=1e-4)' or 'Sequences(20, burn_in=5)'. If there is a preset for the algorithm "
    "and the environment, options override it. The same command continues runs that were stopped."
)


def run_parser(command: str, add_help: bool) -> PartsParser:
    """Make the parser of a command, with the options that do not depend on the chosen classes."""
    parser = PartsParser(
        f"python -m pytorchrl {command}",
        usage=_USAGES[command],
        description="Compose a run from classes given by name, and train it with one or more seeds.",
        epilog=_EPILOG,
        add_help=add_help,
        allow_abbrev=False,
    )
    parser.add_argument("--algorithm", metavar="NAME", help=", ".join(names_of(Algorithm)))
    parser.add_argument("--env", metavar="ID", help="a gymnasium id; data sets with their spaces need none")
    parser.add_argument(
        "--storage", metavar="NAME", help=f"{', '.join(names_of(Storage))} (default: one that suits the algorithm)"
    )
    parser.add_argument(
        "--actor", metavar="NAME", help=f"{', '.join(names_of(Actor))} (default: one that suits the storage)"
    )
    parser.add_argument(
        "--steps",
        type=whole_number,
        metavar="INT",
        help="environment steps to train for; updates where no steps are collected",
    )
    parser.add_argument("--num-envs", type=int, metavar="INT", help="copies of the environment")
    parser.add_argument(
        "--seeds", "--seed", type=int, nargs="+", metavar="INT", help="seeds, a run for each (default: 1)"
    )
    parser.add_argument("--device", metavar="DEVICE", help="cpu, cuda or auto (default: cpu)")
    parser.add_argument(
        "--test-seed",
        type=int,
        metavar="INT",
        help="seed of the first episode of each evaluation, all of which then play the same episodes",
    )
    parser.add_argument(
        "--normalize-rewards",
        choices=("returns", "rewards"),
        help="divide stored rewards by the running deviation of discounted returns, or of rewards (default: not)",
    )
    parser.add_argument(
        "--log-dir", type=Path, metavar="FOLDER", help="folder of the runs (default: runs/ALGORITHM-ENV)"
    )
    parser.add_argument(
        "--log-to", nargs="*", metavar="DESTINATION", help=f"{', '.join(LOGGERS)}, or 'Wandb(project=\"paper\")'"
    )
    parser.add_argument(
        "--checkpoint-every",
        type=whole_number,
        metavar="INT",
        help="steps between checkpoints (default: a tenth of all)",
    )
    parser.add_argument(
        "--callbacks", nargs="+", metavar="CALLBACK", help="such as 'RecordVideos()' 'StopAtReturn(475)'; see the docs"
    )
    parser.add_argument(
        "--data", metavar="PATH", help="a data set to learn from: alone, with --online, or of demonstrations"
    )
    parser.add_argument(
        "--select", metavar="SETTING", help="its episodes to learn from: 'SelectEpisodes(best_share=0.1)'"
    )
    parser.add_argument(
        "--online", action="store_true", default=None, help="mix the data with the environments' transitions"
    )
    parser.add_argument(
        "--data-share", metavar="NUMBER", help="share of the data in each batch with --online (default: 0.5)"
    )
    parser.add_argument("--from", metavar="RUN", help="start from the weights of another run, with its composition")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="a YAML file with these settings; options override it"
    )
    parser.add_argument("--parent-process", type=int, help=argparse.SUPPRESS)
    parser.add_argument(
        "--no-preprocessing",
        action="store_true",
        help="leave frames of Atari raw; ids of Atari are preprocessed as by prl.atari_envs otherwise",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check the parts and print what would be trained, with the settings of the preset; train nothing",
    )
    parser.add_argument("--no-preset", action="store_true", help="use the classes' defaults instead of a preset")
    parser.add_argument(
        "--import",
        dest="imports",
        action="extend",
        nargs="+",
        default=[],
        metavar="MODULE",
        help="modules of yours, or files, which define classes or register environments",
    )
    return parser


def add_options_of_parts(parser: PartsParser, description: Mapping[str, Any]) -> None:
    """Add the options of the chosen classes; none without an algorithm."""
    if description["algorithm"].get("name") is None:
        return
    for kind, cls in classes_of(description).items():
        add_options(parser, kind, cls, but=("env",) if kind == "env" else (), values=description[kind])


def classes_of(description: Mapping[str, Any]) -> dict[str, type[Any]]:
    """Return the classes of the parts of a description that names an algorithm."""
    algorithm = part_named(Algorithm, description["algorithm"]["name"])
    storage, actor = storage_class(description, algorithm), description.get("actor", {}).get("name")
    return {
        "algorithm": algorithm,
        "actor": actor_for(storage) if actor is None else part_named(Actor, actor),
        "storage": storage,
        "env": VecEnv,
    }

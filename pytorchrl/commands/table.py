"""The commands by name: what each does in a sentence, and the function that does it.

A module with a command is imported when the command is given: many import torch, which takes longer than a list of
runs.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import NamedTuple


class Command(NamedTuple):
    """A command of ``python -m pytorchrl``."""

    summary: str
    """The first line of its function's docstring, or of what its words share."""
    place: str
    """``module:function`` below this package; empty where a second word names the command."""

    @property
    def function(self) -> Callable[..., None]:
        """The function, whose module is imported."""
        module, _, name = self.place.partition(":")
        found: Callable[..., None] = getattr(importlib.import_module(f"{__package__}.{module}"), name)
        return found


COMMANDS: Mapping[str, Command] = {
    "train": Command(
        "Compose a run from classes given by name, and train it with one or more seeds; see `train --help`.",
        "train:train",
    ),
    "sweep": Command(
        "Train a composition with every combination of some hyper-parameters; see `sweep --help`.", "sweeps.sweep:sweep"
    ),
    "resume": Command("Continue a run from its last checkpoint.", "continuing:resume"),
    "repeat": Command(
        "Train a new run with the configuration of another, such as with another seed.", "continuing:repeat"
    ),
    "evaluate": Command(
        "Evaluate the policy of a run's last checkpoint, in its environment or on a data set.", "policies:evaluate"
    ),
    "evaluations": Command("Show all evaluations of a run.", "runs:evaluations"),
    "play": Command("Watch the policy of a run's last checkpoint, in a window or in a video.", "policies:watch"),
    "record": Command("Film the policy of a run's last checkpoint.", "policies:record"),
    "export": Command("Write the network that acts, for use without this toolkit.", "policies:export"),
    "push": Command(
        'Publish a policy on the Hugging Face hub, for load_policy("hf://user/name"); needs the extra hub and a '
        "log-in.",
        "publishing:push",
    ),
    "ls": Command(
        "List the runs in a folder and all folders below it, with the mean returns of training and evaluation.",
        "runs:ls",
    ),
    "show": Command(
        "Show the composition of a run, the code and machine that it was trained with, and its returns.", "show:show"
    ),
    "env": Command(
        "Describe an environment: its spaces, the returns of random actions, its speed, and what is wrong with it.",
        "env:env",
    ),
    "compare": Command(
        "Compare runs of several seeds: interquartile means with 95% bootstrap intervals, probabilities of "
        "improvement.",
        "comparing:compare",
    ),
    "plot": Command(
        "Draw the learning curves of runs into a PNG, SVG or PDF file, or write their numbers to a CSV file.",
        "comparing:plot",
    ),
    "report": Command(
        "Write a page about runs that a browser shows without a network, and that can be sent to others.",
        "reporting:report",
    ),
    "inspect": Command(
        "Describe the storage in a checkpoint, or single transitions: episode, age, priority, observations.",
        "inspect:inspect",
    ),
    "data": Command("Make, collect, list, show, convert, merge, prune and split data sets.", ""),
}
DATA_COMMANDS: Mapping[str, Command] = {
    "make": Command(
        "Make a data set of an environment: train an agent where the kind needs one, and record its episodes.",
        "data.recording:make",
    ),
    "collect": Command("Record episodes of the agent of a run's last checkpoint.", "data.recording:collect"),
    "ls": Command(
        "List the data sets and the storages on disk in a folder and all folders below it.", "data.datasets:ls"
    ),
    "show": Command(
        "Describe a data set: fields, episodes, returns, scores, how episodes ended, and what is suspicious.",
        "data.datasets:show",
    ),
    "convert": Command(
        "Write a data set, a table of steps, or what a storage holds, in another format.", "data.datasets:convert"
    ),
    "merge": Command("Concatenate several data sets into a new one.", "data.datasets:merge"),
    "prune": Command(
        "Write a selection of episodes of a data set as a new one, in their order.", "data.datasets:prune"
    ),
    "split": Command(
        "Divide the episodes of a data set into one to train on and one to validate on.", "data.datasets:split"
    ),
}
READ_THEIR_OWN_ARGUMENTS = ("train", "sweep")
"""Commands whose options depend on the classes that are named."""

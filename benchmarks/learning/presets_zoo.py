"""The zoo: the best policy of each measured preset of a small task, with its return."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import pytorchrl as prl
from benchmarks.shared.page_texts import paragraphs
from pytorchrl.experiments.policies.published_policies import policy_state
from pytorchrl.experiments.runs import checkpoint
from pytorchrl.experiments.runs.composition import envs_of
from pytorchrl.logging.groups import environment
from pytorchrl.scheme import evaluate
from storages.component.factory import make_factory
from storages.files import write_atomically

EPISODES, COPIES, SEED = 100, 10, 0
"""Of the evaluation whose return the table has: episodes, copies of the environment that play them, their seed."""


def write_policy(source: Path, output: Path) -> float:
    """Write the policy of a run, or of a file, into the zoo, and return its mean return.

    Args:
        source: a run folder or a file of weights.
        output: the file.
    """
    state = policy_state(source)
    output.parent.mkdir(parents=True, exist_ok=True)
    checkpoint.save(output, state)
    mean_return = replayed(output)
    checkpoint.save(output, {**state, "test_return": mean_return, "first_return": replayed(output, COPIES)})
    return mean_return


def replayed(file: Path, episodes: int = EPISODES) -> float:
    """Return the mean return of a policy of the zoo in the episodes of the table, or in the first of them.

    Args:
        file: of the policy.
        episodes: how many; as many as there are copies are the first ones of all.
    """
    config = checkpoint.load(file, checkpoint.READING)["config"]
    envs = envs_of(config, file)
    with make_factory(envs.cls, (), {**envs.hyper_parameters, "num_envs": COPIES})() as made:
        algorithm = prl.load_policy(file).algorithm
        return evaluate(algorithm, made, episodes, np.random.SeedSequence(SEED)).mean_return


def write_page(zoo: Path) -> None:
    """Write the table of the policies that are in the zoo."""
    states = {file.stem: checkpoint.load(file, checkpoint.READING) for file in sorted(zoo.glob("*.pt"))}
    header = ["policy", "algorithm", "environment", "return", f"first {COPIES}", "steps", "seed"]
    rows = [header, ["---", "---", "---", "---:", "---:", "---:", "---:"], *(_row(*item) for item in states.items())]
    about = (
        "The best policy of each measured preset of a small task, as its run ended with it or as an evaluation during "
        f'the run found it: `prl.load_policy("zoo:NAME")`, `python -m pytorchrl play zoo:NAME`. Returns are means over '
        f"{EPISODES} episodes that {COPIES} copies of the environment play, seeded by {SEED}, of actions that are "
        "deterministic, and over the first one of each copy; a test replays them. `train --algorithm ALGORITHM --env "
        "ENVIRONMENT --seeds SEED` trained them, with the [preset](../../docs/presets.md). Files have weights and "
        "compositions, no state of optimisers. Written by `benchmarks/learning/presets.py --zoo`."
    )
    table = [f"| {' | '.join(row)} |" for row in rows]
    write_atomically(
        zoo / "README.md", "\n".join(["# Trained policies", "", *paragraphs(about), "", *table, ""]).encode()
    )


def _row(name: str, state: Mapping[str, Any]) -> list[str]:
    config = state["config"]
    returns = (f"{state[name]:,.2f}" for name in ("test_return", "first_return"))
    facts = *returns, f"{state['steps']:,}", str(config["seed"])
    return [f"`{name}`", config["algorithm"]["name"], environment(config), *facts]

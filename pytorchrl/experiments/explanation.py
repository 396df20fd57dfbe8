"""Why a run makes no update."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytorchrl.scheme.scheme import Scheme


class PhaseResult(NamedTuple):
    """Result of the update phases after one step of a run."""

    steps: int
    """Steps of the run when they were due."""
    phases: int
    batches: int
    """Batches that the algorithm was given."""
    updates: int
    """Updates that it counted."""
    metrics: Mapping[str, Any]
    """Of the last batch."""


@dataclass(frozen=True)
class Explanation:
    """Why no update of a run is due, or why none was made; ``print`` shows it as sentences."""

    algorithm: str
    updates: int
    """Updates so far."""
    reason: str
    """Why no update is due, as a sentence."""
    waits_for: str
    """The event that makes an update due."""
    last_phase: str | None
    """Why the last update phases made fewer updates than they had batches; None where they did not."""

    def __str__(self) -> str:
        made = f"has made {self.updates:,} updates" if self.updates else "has made no update yet"
        last = f" {self.last_phase}" if self.last_phase else ""
        return f"{self.algorithm} {made}.{last} {self.reason} The run waits for {self.waits_for}."


def explain(
    scheme: Scheme, target_steps: int, phases_due: int, has_more_due: bool, last_phase: PhaseResult | None
) -> Explanation:
    """Return why no update is due, or why none was made in the last phases.

    Args:
        scheme: of the run.
        target_steps: of the run.
        phases_due: update phases that are due and not made yet.
        has_more_due: whether an evaluation or callbacks of the last step are due.
        last_phase: what the last phases did; None where this process has made none.
    """
    reason, waits_for = scheme.explain_wait()
    if scheme.steps >= target_steps and not phases_due:
        reason = f"The target of {target_steps:,} {scheme.unit} is reached. Before: {reason}"
        waits_for = "a larger target_steps"
    elif phases_due:
        reason, waits_for = f"{phases_due} update phases are due.", "the next Learner.step(), which makes them"
    elif has_more_due:
        waits_for = f"the evaluation and callbacks of the last step, and then for {waits_for}"
    name = str(scheme.config["algorithm"]["name"])
    return Explanation(name, scheme.algorithm.updates, reason, waits_for, _shortfall(scheme, last_phase))


def _shortfall(scheme: Scheme, phase: PhaseResult | None) -> str | None:
    if phase is None or phase.updates >= max(1, phase.batches):
        return None
    at = f"The update phase at {phase.steps:,} {scheme.unit}"
    if not phase.batches:
        return f"{at} made no update, as the algorithm drew no batch in it."
    made = f"{at} made {phase.updates} updates with {phase.batches} batches"
    target_kl, divergence = getattr(scheme.algorithm, "target_kl", None), phase.metrics.get("kl")
    if target_kl is not None and divergence is not None and float(divergence) > 1.5 * target_kl:
        return (
            f"{made}, as the divergence kl={float(divergence):.3g} of the last one exceeds 1.5 times "
            f"target_kl={target_kl:g}: a lower learning rate or a larger target_kl allows more."
        )
    return f"{made}: a batch whose losses set Losses.stop ends the phase without an update of its own."

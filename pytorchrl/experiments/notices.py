"""Messages about how a run begins or is resumed, which its learner prints."""

from collections.abc import Sequence

from pytorchrl.experiments.runs import storage_paths
from pytorchrl.scheme.scheme import Scheme


def of_stored_transitions(scheme: Scheme) -> str | None:
    """Return that a new run's storage on disk is not empty, which is meant by some and overlooked by others."""
    storage = scheme.config["storage"]
    directory = storage_paths.directories_of(scheme.config).get("main")
    if directory is None or "dataset" in storage or scheme.steps or not (stored := len(scheme.storage)):
        return None
    return (
        f"{storage['name']}: {directory} holds {stored:,} transitions already, from which this run learns, too; "
        f"another directory begins an empty storage."
    )


def of_cut_episodes(scheme: Scheme, envs: Sequence[int]) -> str | None:
    """Return that the running episodes of environments are lost in a resumed run; None if there are no such."""
    if not envs or scheme.envs is None:
        return None
    return (
        f"{len(envs)} of {scheme.envs.num_envs} environments could not be restored (number "
        f"{', '.join(map(str, envs))}): the last observation was not reproduced. Their running episodes count as "
        f"truncated, and new ones begin."
    )

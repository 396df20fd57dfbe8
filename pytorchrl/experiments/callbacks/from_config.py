"""Building callbacks from a run's configuration."""

from collections.abc import Mapping
from typing import Any

from pytorchrl.experiments.callbacks.callback import Callback
from pytorchrl.experiments.runs.composition import made_of, refuse_to_import
from pytorchrl.scheme.compatibility import CompositionError

_WAY_OUT = (
    "make the callbacks in a script and pass them: Learner.resume(log_dir, callbacks=callbacks), or the same to "
    "Learner.repeat"
)


def callbacks_from_config(config: Mapping[str, Any]) -> list[Callback]:
    """Build the callbacks that a run's configuration describes.

    Classes are looked up by name among those already imported: a configuration cannot execute other code.

    Raises:
        CompositionError: the class of one is not imported, or one contains an object that a script defines.
    """
    described = config.get("callbacks", [])
    refuse_to_import({"callbacks": described}, _WAY_OUT)
    callbacks = []
    for one in described:
        try:
            callback = made_of(one)
        except CompositionError as error:
            raise CompositionError(f"{error}; or {_WAY_OUT}") from error
        if not isinstance(callback, Callback):
            raise CompositionError(f"the run names {one}, which is not a Callback; {_WAY_OUT}")
        callbacks.append(callback)
    return callbacks

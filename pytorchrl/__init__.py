"""A storage-centric deep reinforcement learning toolkit: ``import pytorchrl as prl``.

Compose an actor, an algorithm and a storage by their factories, and train::

    scheme = prl.Scheme(algo_factory=..., actor_factory=..., storage_factory=..., train_envs_factory=...)
    prl.Learner(scheme, target_steps=20_000, log_dir="runs/mine").run()
"""

from typing import NoReturn as _NoReturn

import storages as _storages

# Several packages are named so.
if "PersistentEpisodicBuffer" not in getattr(_storages, "__all__", ()):
    raise ImportError(
        f"pytorchrl needs its own package `storages`, but `import storages` finds another project's in "
        f"{_storages.__file__} (django-storages installs one): install pytorchrl in a virtual environment of its own",
        name="storages",
        path=_storages.__file__,
    )

from pytorchrl import registered_envs as registered_envs
from storages.names_on_demand import names_on_demand as _names_on_demand


def _refuse(name: str) -> _NoReturn:
    # Read where it is needed, as few programs need it.
    from pytorchrl.agent.other_names.items import refuse_name

    refuse_name(name)


__getattr__, __dir__, __all__ = _names_on_demand(__name__, _refuse)

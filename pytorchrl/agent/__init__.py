"""Parts of an agent: environments, actors, explorers, planners, optimisers and algorithms."""

import storages

# Several packages are named so, and `pytorchrl` imports this module first.
if not hasattr(storages, "PersistentEpisodicBuffer"):
    raise ImportError(
        f"pytorchrl needs its own package `storages`, but `import storages` finds another project's in "
        f"{storages.__file__} (django-storages installs one): install pytorchrl in a virtual environment of its own",
        name="storages",
        path=storages.__file__,
    )

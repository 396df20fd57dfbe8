"""Other libraries beside ours, a module each: used as they document it, by the quickest way."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

PEERS_IN_MEMORY = {
    "cpprb": "benchmarks.storages.peer_cpprb",
    "rlox": "benchmarks.storages.peer_rlox",
    "tianshou": "benchmarks.storages.peer_tianshou",
    "torchrl": "benchmarks.storages.peer_torchrl",
    "stable-baselines3": "benchmarks.storages.peer_stable_baselines3",
}
PEERS_ON_DISK = {
    "PFRL": "benchmarks.persistence.disk_pfrl",
    "torchrl": "benchmarks.persistence.disk_torchrl",
    "Minari": "benchmarks.persistence.disk_minari",
}


def load_peers(modules: Mapping[str, str]) -> tuple[list[Any], list[str]]:
    """Return the libraries that are installed, and a sentence for each that is not, or only in part.

    Args:
        modules: the modules of the peers, by the libraries' names.
    """
    peers: list[Any] = []
    remarks: list[str] = []
    for name, module_name in modules.items():
        try:
            module = import_module(module_name)
        except Exception as error:  # One library that fails does not stop the others.
            reason = str(error).strip().partition("\n")[0]
            remarks.append(f"{name} is left out: {type(error).__name__}: {reason}")
        else:
            peers.extend(module.PEERS)
            if remark := getattr(module, "REMARK", ""):
                remarks.append(remark)
    return peers, remarks

"""The peers of ``storages.py``, a module ``peer_...`` each: used as their documentation says, by the quickest way."""

from importlib import import_module

from replay_ours import Library

_MODULES = {
    "cpprb": "peer_cpprb",
    "tianshou": "peer_tianshou",
    "torchrl": "peer_torchrl",
    "stable-baselines3": "peer_stable_baselines3",
}


def load_peers() -> tuple[list[Library], list[str]]:
    """The libraries that are here, and for each that is not, or not whole, a sentence why."""
    peers: list[Library] = []
    remarks: list[str] = []
    for name, module_name in _MODULES.items():
        try:
            module = import_module(module_name)
        except Exception as error:  # Whatever a library stumbles over here, the others are measured.
            reason = str(error).strip().partition("\n")[0]
            remarks.append(f"{name} is left out: {type(error).__name__}: {reason}")
        else:
            peers.append(module.PEER)
            if remark := getattr(module, "REMARK", ""):
                remarks.append(remark)
    return peers, remarks

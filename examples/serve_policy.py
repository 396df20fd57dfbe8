"""A web service of a trained policy: ``python examples/serve_policy.py runs/to-deploy --port 8000``.

A POST of ``{"observation": [0, 0, 0, 0]}`` to ``localhost:8000/act`` returns an action, and ``localhost:8000/docs``
describes the requests. FastAPI and uvicorn are installed by ``pip install "pytorchrl-toolkit[serve]"``.
"""

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

import pytorchrl as prl
from pytorchrl.experiments import TrainedPolicy


@dataclass
class Arguments:
    """Settings of the service."""

    run: tyro.conf.Positional[Path]
    """a run folder, or a file of weights that load_policy takes"""
    host: str = "127.0.0.1"
    """address to listen at; 0.0.0.0 for all of the machine's"""
    port: int = 8000
    """to listen at; 0 for one that is free"""
    most_clients: int = 1_000
    """clients whose recurrent states are kept; the one that has not asked for the longest time is forgotten"""


class Question(BaseModel):
    """What a client sends for an action."""

    observation: Any
    """Numbers in nested lists, or a mapping of such for a dict of observations."""
    client: str = ""
    """Each client has recurrent states of its own."""
    begins: bool = False
    """Whether an episode begins with the observation."""


def service(run: Path, most_clients: int = 1_000) -> FastAPI:
    """Return the web service of a policy, which any ASGI server runs."""
    policy = prl.load_policy(run)
    clients: OrderedDict[str, TrainedPolicy] = OrderedDict()
    app = FastAPI(title="A trained policy")

    # Asynchronous functions run one after the other in the server's thread: a policy is not called twice at a time.
    @app.get("/policy")
    async def describe() -> dict[str, str]:
        spaces = {"observation_space": policy.observation_space, "action_space": policy.action_space}
        return {"algorithm": type(policy.algorithm).__name__} | {name: str(space) for name, space in spaces.items()}

    @app.post("/act")
    async def act(question: Question) -> dict[str, Any]:
        client = clients.pop(question.client, None)
        if client is None:
            client = TrainedPolicy(policy.algorithm, allow_nonfinite=policy.allow_nonfinite)
        clients[question.client] = client
        if len(clients) > most_clients:
            clients.popitem(last=False)
        if question.begins:
            client.reset()
        try:
            return {"action": plain(client(question.observation))}
        except (TypeError, ValueError) as error:
            raise HTTPException(422, str(error)) from error

    return app


def plain(action: Any) -> Any:
    """Return an action as lists and numbers."""
    return [plain(part) for part in action] if isinstance(action, tuple) else np.asarray(action).tolist()


if __name__ == "__main__":
    arguments = tyro.cli(Arguments, description=__doc__)
    torch.set_num_threads(1)  # the fastest for small networks
    uvicorn.run(service(arguments.run, arguments.most_clients), host=arguments.host, port=arguments.port)

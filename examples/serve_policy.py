"""A web service of a trained policy: ``python examples/serve_policy.py runs/to-deploy --port 8000``.

A POST of ``{"observation": [0, 0, 0, 0]}`` to ``localhost:8000/act`` returns an action, and ``localhost:8000/docs``
describes the requests. FastAPI and uvicorn are installed by ``pip install "pytorchrl-toolkit[serve]"``.
"""

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import tyro
import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, ConfigDict, Field, StrictBool

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

    model_config = ConfigDict(extra="forbid")
    observation: Any
    """Numbers in nested lists, or a mapping of such for a dict of observations."""
    client: Annotated[str, Field(min_length=1)] | None = None
    """Each client has recurrent states of its own; needed where the policy has a memory."""
    begins: StrictBool = False
    """Whether an episode begins with the observation."""


def service(run: Path, most_clients: int = 1_000) -> FastAPI:
    """Return the web service of a policy, which any ASGI server runs; in one process where it has a memory."""
    policy = prl.load_policy(run)
    if policy.algorithm.reads_rewards:
        raise ValueError(f"{run}: {type(policy.algorithm).__name__} acts by rewards, which this service does not take")
    has_memory = policy.algorithm.actor.memory is not None or policy.algorithm.keeps_acting_state
    clients: OrderedDict[str, TrainedPolicy] = OrderedDict()
    app = FastAPI(title="A trained policy")

    # Asynchronous functions run one after the other in the server's thread: a policy is not called twice at a time.
    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/policy")
    async def describe() -> dict[str, Any]:
        spaces = {"observation_space": policy.observation_space, "action_space": policy.action_space}
        described: dict[str, Any] = {"algorithm": type(policy.algorithm).__name__, "has_memory": has_memory}
        if policy.action_names:
            described["action_names"] = list(policy.action_names)
        return described | {name: str(space) for name, space in spaces.items()}

    @app.post("/act")
    async def act(question: Question) -> dict[str, Any]:
        try:
            refuse_other_than_numbers(question.observation)
            policy.as_arrays(question.observation)  # a question that is refused changes no state
            if not has_memory:
                return {"action": plain(policy(question.observation))}
            if question.client is None:
                raise ValueError('the policy has a memory: send "client": "name", so that each has its own states')
            client = clients.pop(question.client, None)
            is_new = client is None or question.begins
            if client is None:
                client = TrainedPolicy(policy.algorithm, allow_nonfinite=policy.allow_nonfinite)
            clients[question.client] = client
            if len(clients) > most_clients:
                clients.popitem(last=False)
            if question.begins:
                client.reset()
            return {"action": plain(client(question.observation)), "state_is_new": is_new}
        except (OverflowError, TypeError, ValueError) as error:
            raise HTTPException(422, reason(error)) from error

    return app


def refuse_other_than_numbers(observation: Any) -> None:
    """Refuse texts, booleans and nulls, which numpy would convert.

    Raises:
        TypeError: there are some.
    """
    left = [observation]
    while left:
        part = left.pop()
        if isinstance(part, list | dict):
            left.extend(part.values() if isinstance(part, dict) else part)
        elif isinstance(part, bool) or not isinstance(part, int | float):
            raise TypeError(f"the observation must be numbers, got {part!r}")


def reason(error: Exception) -> str:
    """Return why a question is refused, in terms of what a client can send."""
    text = str(error).removeprefix("TrainedPolicy: ")
    text = text.replace("call reset() when episodes begin", 'send "begins": true where an episode begins')
    return text.partition("; allow_nonfinite")[0]


def plain(action: Any) -> Any:
    """Return an action as lists and numbers."""
    return [plain(part) for part in action] if isinstance(action, tuple) else np.asarray(action).tolist()


if __name__ == "__main__":
    arguments = tyro.cli(Arguments, description=__doc__)
    torch.set_num_threads(1)  # the fastest for small networks
    uvicorn.run(service(arguments.run, arguments.most_clients), host=arguments.host, port=arguments.port)

"""A web service of a trained policy: ``python examples/serve_policy.py runs/to-deploy --port 8000``.

A POST of ``{"observation": [0, 0, 0, 0]}`` to ``localhost:8000/act`` returns an action, and ``localhost:8000/docs``
describes the requests. FastAPI and uvicorn are installed by ``pip install "pytorchrl-toolkit[serve]"``. Any ASGI server
runs ``service_of_environment``, of the policy that the environment variable ``POLICY`` names.
"""

import asyncio
import os
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import tyro
import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, StrictBool
from uvicorn.protocols.http.h11_impl import H11Protocol

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
    workers: int = 1
    """processes; a policy with a memory is served by one, as states lie in its memory"""
    most_clients: int = 1_000
    """clients whose recurrent states are kept; the one that has not asked for the longest time is forgotten"""
    most_rows: int = 1_000
    """observations of a request"""
    most_bytes: int = 1_000_000
    """of a request; a larger one is not read"""


LIMITS = ("most_clients", "most_rows", "most_bytes")
"""Settings that environment variables give, too, in capital letters."""


class Question(BaseModel):
    """What a client sends for an action."""

    model_config = ConfigDict(extra="forbid")
    observation: Any
    """Numbers in nested lists, or a mapping of such for a dict of observations."""
    client: Annotated[str, Field(min_length=1)] | None = None
    """Each client has recurrent states of its own; needed where the policy has a memory."""
    begins: StrictBool = False
    """Whether an episode begins with the observation."""


def service(arguments: Arguments) -> FastAPI:
    """Return the web service of a policy."""
    policy = prl.load_policy(arguments.run)
    if policy.algorithm.reads_rewards:
        name = type(policy.algorithm).__name__
        raise ValueError(f"{arguments.run}: {name} acts by rewards, which this service does not take")
    has_memory = policy.algorithm.actor.memory is not None or policy.algorithm.keeps_acting_state
    if has_memory and arguments.workers > 1:
        raise ValueError(f"{arguments.run}: the policy has a memory, which lies in one process; leave out --workers")
    torch.set_num_threads(1)  # the fastest for small networks
    clients: OrderedDict[str, TrainedPolicy] = OrderedDict()
    app = FastAPI(title="A trained policy")

    @app.middleware("http")
    async def refuse_large(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        length = request.headers.get("content-length")
        if request.method == "POST" and length is None:
            return JSONResponse({"detail": "a request needs the header Content-Length"}, 411)
        if length is not None and int(length) > arguments.most_bytes:
            return JSONResponse({"detail": f"a request has at most {arguments.most_bytes} bytes, got {length}"}, 413)
        return await answer(request)

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
            batch, _ = policy.as_arrays(question.observation)  # a question that is refused changes no state
            rows = len(next(iter(batch.values())) if isinstance(batch, Mapping) else batch)
            if rows > arguments.most_rows:
                raise ValueError(f"a request has at most {arguments.most_rows} observations, got {rows}")
            if not has_memory:
                return {"action": plain(policy(question.observation))}
            if question.client is None:
                raise ValueError('the policy has a memory: send "client": "name", so that each has its own states')
            client = clients.pop(question.client, None)
            is_new = client is None or question.begins
            if client is None:
                client = TrainedPolicy(policy.algorithm, allow_nonfinite=policy.allow_nonfinite)
            clients[question.client] = client
            if len(clients) > arguments.most_clients:
                clients.popitem(last=False)
            if question.begins:
                client.reset()
            return {"action": plain(client(question.observation)), "state_is_new": is_new}
        except (OverflowError, TypeError, ValueError) as error:
            raise HTTPException(422, reason(error)) from error

    return app


def service_of_environment() -> FastAPI:
    """Return the service that environment variables describe, POLICY and those of LIMITS, in a process of a server."""
    limits = {name: int(os.environ[name.upper()]) for name in LIMITS if name.upper() in os.environ}
    return service(Arguments(Path(os.environ["POLICY"]), workers=int(os.environ.get("WEB_CONCURRENCY", 1)), **limits))


class UndelayedProtocol(H11Protocol):
    """Answers at once.

    Over a connection that stays open, an answer of a socket that several processes share waits 40 ms otherwise, for
    the client's acknowledgement of the answer before.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Let the operating system send small answers at once."""
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)


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
    app = service(arguments)  # errors are raised here, not in each process
    if arguments.workers == 1:
        uvicorn.run(app, host=arguments.host, port=arguments.port)
    else:
        os.environ |= {"POLICY": str(arguments.run)} | {name.upper(): str(getattr(arguments, name)) for name in LIMITS}
        os.environ["WEB_CONCURRENCY"] = str(arguments.workers)  # which uvicorn reads, too
        uvicorn.run(
            f"{Path(__file__).stem}:{service_of_environment.__name__}",
            factory=True,
            app_dir=str(Path(__file__).parent),
            host=arguments.host,
            port=arguments.port,
            http=UndelayedProtocol,
            timeout_worker_healthcheck=60,  # seconds; importing torch may take more than the default of 5
        )

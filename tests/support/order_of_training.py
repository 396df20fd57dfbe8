"""The order in which an algorithm of imitation trains its policy and its discriminator."""

from collections.abc import Callable
from typing import Any

import pytest


def events_of(
    algorithm: Any, monkeypatch: pytest.MonkeyPatch, check: Callable[[str], None] = lambda event: None
) -> list[str]:
    """Note each update of the policy and of the discriminator in a list, after a check is made."""
    events: list[str] = []

    def recording(event: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            events.append(event)
            check(event)
            return method(*arguments)

        return call

    for event, name in (("policy", "update"), ("discriminator", "step_discriminator")):
        monkeypatch.setattr(algorithm, name, recording(event, getattr(algorithm, name)))
    return events

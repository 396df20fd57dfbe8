"""What tests of agents share."""

import pytest
from torch import nn

from pytorchrl.agent.actors.layers import linear_layers
from pytorchrl.agent.ops.products import LINEAR_TYPES


@pytest.fixture(params=LINEAR_TYPES, ids=["layers of torch", "layers by oneDNN"])
def linear_class(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[nn.Linear]:
    """The class of fully connected layers, which depends on the machine's processor."""
    monkeypatch.setattr(linear_layers, "LINEAR", request.param)
    chosen: type[nn.Linear] = request.param
    return chosen

"""Choice of the feature extractor for an observation space."""

import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import gymnasium as gym
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.encoders.convolutions import (
    DataEfficientConvolutions,
    DrQConvolutions,
    ImpalaCNN,
    ImpalaConvolutions,
    NatureCNN,
    NatureConvolutions,
    SmallCNN,
    SmallConvolutions,
    WideImpalaConvolutions,
    image_layout,
    suitable_cnn,
)
from pytorchrl.agent.actors.encoders.custom_extractors import UserExtractor, features_by, name_of
from pytorchrl.agent.actors.encoders.vectors import (
    Choices,
    EmbeddingFeatures,
    MultiOneHotFeatures,
    OneHotFeatures,
    VectorFeatures,
)
from pytorchrl.agent.actors.layers.linear_layers import Initialisation
from pytorchrl.agent.actors.layers.mlp import MLP
from pytorchrl.agent.envs.spaces import Flat, UnsupportedSpaceError, choices_of

ExtractorName: TypeAlias = Literal[
    "auto",
    "mlp",
    "nature_cnn",
    "small_cnn",
    "impala_cnn",
    "nature_convolutions",
    "small_convolutions",
    "impala_convolutions",
    "wide_impala_convolutions",
    "data_efficient_convolutions",
    "drq_convolutions",
    "identity",
    "embedding",
]
ExtractorKind: TypeAlias = ExtractorName | UserExtractor
"""A name, the class of ours that it stands for, or a user's own extractor."""

_Convolutions: TypeAlias = (
    NatureConvolutions | SmallConvolutions | ImpalaConvolutions | DataEfficientConvolutions | DrQConvolutions
)
_CNNS: Mapping[ExtractorName, type[_Convolutions]] = {
    "nature_cnn": NatureCNN,
    "small_cnn": SmallCNN,
    "impala_cnn": ImpalaCNN,
    "nature_convolutions": NatureConvolutions,
    "small_convolutions": SmallConvolutions,
    "impala_convolutions": ImpalaConvolutions,
    "wide_impala_convolutions": WideImpalaConvolutions,
    "data_efficient_convolutions": DataEfficientConvolutions,
    "drq_convolutions": DrQConvolutions,
}
_NAMES: Mapping[Any, ExtractorName] = {
    MLP: "mlp",
    VectorFeatures: "identity",
    EmbeddingFeatures: "embedding",
    **{network: name for name, network in _CNNS.items()},
}


class DictFeatures(nn.Module):
    """The concatenated features of the parts of a dict observation, in the order of the space.

    Args:
        space: of the observation.
        initialisation: as for :class:`~pytorchrl.agent.actors.layers.mlp.MLP`.
        extractor: of the parts; a CNN applies only to the images among them, "embedding" only to discrete parts.

    Raises:
        ValueError: there is no part that the named extractor applies to.
    """

    def __init__(self, space: spaces.Dict, initialisation: Initialisation, extractor: ExtractorName) -> None:
        super().__init__()
        kinds = {name: extractor_of(part, extractor) for name, part in space.spaces.items()}
        if extractor not in ("auto", *kinds.values()):
            wanted = "Discrete and MultiDiscrete observations" if extractor == "embedding" else "images"
            raise ValueError(f"feature_extractor {extractor!r} is for {wanted}, there are none in {space}")
        # A list, because a key of the space may not be a legal name of a submodule.
        self.parts = nn.ModuleList(
            features_of(part, initialisation, kinds[name]) for name, part in space.spaces.items()
        )
        self._keys = list(space.spaces)
        self.output_size = sum(output_size_of(part) for part in self.parts)

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        """Map a dict of (B, ...) to (B, output_size)."""
        return torch.cat([part(observation[key]) for key, part in zip(self._keys, self.parts, strict=True)], dim=1)


def features_of(space: gym.Space[Any], initialisation: Initialisation, extractor: ExtractorKind = "auto") -> nn.Module:
    """Make the feature extractor of a space; "auto": a CNN for images, one-hot or flat vectors otherwise, part by part.

    It maps observations (B, *obs), or a dict of such, to (B, output_size).

    Raises:
        TypeError: a user's extractor does not make a module that returns a Tensor.
        ValueError: the named extractor does not fit the observations, or the output of the user's is not (B, n).
    """
    name = named(extractor)
    if not isinstance(name, str):
        return features_by(name, space)
    if isinstance(space, spaces.Dict):
        return DictFeatures(space, initialisation, name)
    if not isinstance(space, Flat):
        raise UnsupportedSpaceError(
            f"feature_extractor {name!r}: observations must be arrays or dicts of arrays, the space is {space}; VecEnv "
            f"flattens nested spaces to a dict"
        )
    kind = (suitable_cnn(space) or "mlp") if name == "auto" else name
    if kind in _CNNS:
        return _CNNS[kind](space, initialisation)
    if kind == "embedding":
        return EmbeddingFeatures(space)
    if kind == "mlp" and isinstance(space, spaces.Discrete):
        return OneHotFeatures(space)
    if kind == "mlp" and isinstance(space, spaces.MultiDiscrete):
        return MultiOneHotFeatures(space)
    return VectorFeatures(space)


def output_size_of(features: nn.Module) -> int:
    """Return the number of features of an extractor."""
    size: Any = features.output_size
    return int(size)


def named(extractor: ExtractorKind) -> ExtractorKind:
    """Return the name of an extractor, also if given by its class; an extractor without a name as it is."""
    if isinstance(extractor, str):
        return extractor
    return _NAMES.get(extractor, extractor) if isinstance(extractor, type) else extractor


def extractor_of(space: gym.Space[Any], extractor: ExtractorName) -> ExtractorName:
    """Return the extractor of one part of a dict; a named CNN applies only to images."""
    suitable: ExtractorName = suitable_cnn(space) or "mlp"
    if extractor in _CNNS:
        return "mlp" if suitable == "mlp" else extractor
    if extractor == "embedding":
        return extractor if isinstance(space, Choices) else suitable
    return suitable if extractor == "auto" else extractor


def described(space: gym.Space[Any], extractor: ExtractorKind) -> str:
    """Describe the feature extractor of a space, for display."""
    name = named(extractor)
    if not isinstance(name, str):
        return name_of(name)
    if isinstance(space, spaces.Dict):
        parts = (f"{key!r}: {described(part, extractor_of(part, name))}" for key, part in space.spaces.items())
        return ", ".join(parts)
    kind = (suitable_cnn(space) or "mlp") if name == "auto" else name
    if kind in _CNNS:
        return f"{_CNNS[kind].__name__} of {image_layout(space)}"
    if isinstance(space, Choices) and kind != "identity":
        text = f"one of {', '.join(map(str, choices_of(space)))}"
        return f"embedding of {text}" if kind == "embedding" else text
    size = math.prod(space.shape or (1,))
    return f"vector of {size} number{'s' * (size > 1)}"

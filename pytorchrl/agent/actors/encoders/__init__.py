"""Feature extractors: networks from observations of a space to feature vectors."""

from pytorchrl.agent.actors.encoders.choice import ExtractorKind, described, features_of, named, output_size_of
from pytorchrl.agent.actors.encoders.convolutions import ImpalaCNN, NatureCNN, NatureConvolutions, SmallCNN
from pytorchrl.agent.actors.encoders.custom_extractors import some_observations
from pytorchrl.agent.actors.encoders.vectors import EmbeddingFeatures, VectorFeatures

__all__ = [
    "EmbeddingFeatures",
    "ExtractorKind",
    "ImpalaCNN",
    "NatureCNN",
    "NatureConvolutions",
    "SmallCNN",
    "VectorFeatures",
    "described",
    "features_of",
    "named",
    "output_size_of",
    "some_observations",
]

"""Feature extractors: networks from observations of a space to feature vectors."""

from pytorchrl.agent.actors.encoders.choice import ExtractorKind as ExtractorKind
from pytorchrl.agent.actors.encoders.choice import described as described
from pytorchrl.agent.actors.encoders.choice import features_of as features_of
from pytorchrl.agent.actors.encoders.choice import named as named
from pytorchrl.agent.actors.encoders.choice import output_size_of as output_size_of
from pytorchrl.agent.actors.encoders.convolutions import DataEfficientConvolutions as DataEfficientConvolutions
from pytorchrl.agent.actors.encoders.convolutions import DrQConvolutions as DrQConvolutions
from pytorchrl.agent.actors.encoders.convolutions import ImpalaCNN as ImpalaCNN
from pytorchrl.agent.actors.encoders.convolutions import NatureCNN as NatureCNN
from pytorchrl.agent.actors.encoders.convolutions import NatureConvolutions as NatureConvolutions
from pytorchrl.agent.actors.encoders.convolutions import SmallCNN as SmallCNN
from pytorchrl.agent.actors.encoders.custom_extractors import some_observations as some_observations
from pytorchrl.agent.actors.encoders.vectors import EmbeddingFeatures as EmbeddingFeatures
from pytorchrl.agent.actors.encoders.vectors import VectorFeatures as VectorFeatures

"""Explorers: how actions are chosen while experience is collected."""

from pytorchrl.agent.explorers.explorer import Exploration, Explorer, best_action
from pytorchrl.agent.explorers.greedy import ApeXEpsilonGreedy, EpsilonGreedy, Greedy, UniformUntil
from pytorchrl.agent.explorers.noise import GaussianNoise, OrnsteinUhlenbeck
from pytorchrl.agent.explorers.sampling import Boltzmann, Sample, SampleByMatrix, explorer_for

__all__ = [
    "ApeXEpsilonGreedy",
    "Boltzmann",
    "EpsilonGreedy",
    "Exploration",
    "Explorer",
    "GaussianNoise",
    "Greedy",
    "OrnsteinUhlenbeck",
    "Sample",
    "SampleByMatrix",
    "UniformUntil",
    "best_action",
    "explorer_for",
]

"""Explorers: how actions are chosen while experience is collected."""

from pytorchrl.agent.explorers.explorer import Exploration as Exploration
from pytorchrl.agent.explorers.explorer import Explorer as Explorer
from pytorchrl.agent.explorers.explorer import best_action as best_action
from pytorchrl.agent.explorers.greedy import ApeXEpsilonGreedy as ApeXEpsilonGreedy
from pytorchrl.agent.explorers.greedy import EpsilonGreedy as EpsilonGreedy
from pytorchrl.agent.explorers.greedy import Greedy as Greedy
from pytorchrl.agent.explorers.greedy import UniformUntil as UniformUntil
from pytorchrl.agent.explorers.noise import GaussianNoise as GaussianNoise
from pytorchrl.agent.explorers.noise import OrnsteinUhlenbeck as OrnsteinUhlenbeck
from pytorchrl.agent.explorers.sampling import Boltzmann as Boltzmann
from pytorchrl.agent.explorers.sampling import Sample as Sample
from pytorchrl.agent.explorers.sampling import SampleByMatrix as SampleByMatrix
from pytorchrl.agent.explorers.sampling import explorer_for as explorer_for

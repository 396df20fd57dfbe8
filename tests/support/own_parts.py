"""A script of a user with a custom part of each kind, which trains, stops, and continues with the script.

It is copied out of the project and run there: ``python own_parts.py train FOLDER``, then ``python own_parts.py continue
FOLDER``. The run that is continued in a folder ``NAME`` is trained without a stop in ``NAME-whole``.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

import pytorchrl as prl
from storages.component.hyper_parameters import Count, NonNegative, NonNegativeOrSchedule, Positive, UnitInterval
from storages.transition import LOGP, RET, REW, VAL


class Waves(nn.Module):
    """An encoder."""

    def __init__(self, space: Any, frequencies: int = 4) -> None:
        super().__init__()
        self.layer = nn.Linear(space.shape[0], frequencies)

    def forward(self, observation: Tensor) -> Tensor:
        angles = self.layer(observation)
        return torch.cat([angles.sin(), angles.cos()], dim=1)


class Decaying(nn.Module):
    """A memory."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__()
        self.layer = nn.Linear(input_size, size)
        self.hidden_size = size

    def forward(self, features: Tensor, state: Tensor) -> Tensor:
        return 0.9 * state + torch.tanh(self.layer(features))


class Expectile(prl.outputs.ScalarValue):
    """An output."""

    def loss(self, target: prl.outputs.ScalarValue) -> Tensor:
        error = target.mean - self.mean
        return torch.where(error > 0, 0.3, 0.7) * error.square()


class Expectiles(prl.outputs.ScalarValues):
    def of(self, action: Tensor) -> Expectile:
        return Expectile(self.values.gather(1, action))


class ToExpectiles(prl.heads.ConvertedNumbers):
    def output(self, numbers: Tensor) -> Expectiles:
        return Expectiles(numbers)


class ExpectileHead:
    """A head."""

    def build(self, features: int, actor: prl.Actor) -> nn.Module:
        return ToExpectiles(prl.heads.make_action_layers(features, 1, actor))


class ExpectileDQN(prl.DQN):
    def head(self) -> prl.heads.Head:
        return ExpectileHead()


@dataclass(frozen=True)
class Sticky(prl.Explorer):
    """An explorer with a state."""

    probability: UnitInterval
    then: prl.Explorer

    def act(self, output: Callable[[], Any], exploration: prl.Exploration) -> Tensor:
        action = self.then.act(output, exploration)
        repeat = torch.from_numpy(exploration.random.random((len(action), 1)) < self.probability)
        repeat = repeat.to(action.device) & (exploration.starts == 0)
        exploration.state["last"] = torch.where(repeat, exploration.state.get("last", action), action)
        return exploration.state["last"]

    def check_output(self, output: Any) -> None:
        self.then.check_output(output)


@dataclass(frozen=True)
class Halving(prl.Schedule):
    """A schedule."""

    initial: float
    every: Count

    def at(self, steps: int, target_steps: int) -> float:
        return float(self.initial * 0.5 ** (steps // self.every))

    @property
    def extremes(self) -> tuple[float, float]:
        return min(0.0, self.initial), max(0.0, self.initial)


@dataclass(frozen=True)
class Lion(prl.ElementwiseOptimizer):
    """The rule of an optimiser."""

    beta1: UnitInterval = 0.9
    beta2: UnitInterval = 0.99
    averages = ("means",)

    def move(self, learning_rate: float, parameter: Tensor, gradient: Tensor, *averages: Tensor) -> None:
        (mean,) = averages
        parameter.sub_(mean.lerp(gradient, 1 - self.beta1).sign_(), alpha=learning_rate)
        mean.lerp_(gradient, 1 - self.beta2)


class ConservativeDQN(prl.DQN):
    """An algorithm that adds a hyper-parameter."""

    conservatism: NonNegative = 1.0

    def losses(self, rows: prl.Rows) -> prl.Losses:
        losses, values = super().losses(rows), self.q(rows.now).values
        too_large = rows.mean(values.logsumexp(1, keepdim=True) - values.gather(1, rows.action))
        return replace(losses, of={self.trained: losses.of[self.trained] + self.conservatism * too_large})


class SoftQLearning(prl.OffPolicyAlgorithm):
    """An algorithm defined by its losses: a target, a trained variable, and random numbers."""

    actions = "discrete"
    lr: NonNegativeOrSchedule = 1e-3
    polyak: UnitInterval = 0.9
    entropy: Positive = 0.5

    def build(self) -> None:
        self.q = self.actor.make("q", prl.heads.Values(), acts=True)
        self.trained = self.train("q", self.q)
        self.q_target = self.target(self.q)
        self.train_temperature = self.variable("log_temperature", 0.0, lr="lr")

    def default_explorer(self) -> prl.Explorer:
        return prl.Boltzmann(0.5)

    def policy(self, view: prl.View, exploration: prl.Exploration) -> prl.outputs.ActionValues:
        values: prl.outputs.ActionValues = self.q(view)
        return values

    def losses(self, rows: prl.Rows) -> prl.Losses:
        temperature = self.training.variables["log_temperature"].exp()
        next_values = self.q_target(rows.next)
        chances = (next_values.values / temperature.detach()).softmax(1)
        drawn = torch.multinomial(chances, 1, generator=self.generator)
        value, target = self.q(rows.now).of(rows.action), next_values.of(drawn).backup(rows.reward, rows.discount)
        loss, errors = value.weighted_loss(rows.weight, target)
        surprise = -chances.clamp_min(1e-8).log().gather(1, drawn).mean()
        temperature_loss = (temperature * (surprise - self.entropy)).sum()
        losses = {self.trained: loss, self.train_temperature: temperature_loss}
        return prl.Losses(losses, {"loss": loss.detach()}, rows.per_row(errors))


class FittedValues(prl.PolicyGradient):
    """An algorithm defined by its update, with two optimisers."""

    lr: NonNegativeOrSchedule = 1e-3

    def build(self) -> None:
        self.make_networks()
        self.train_pi = self.train("policy", self.pi)
        self.train_value = self.train("value", self.value, optimizer=prl.LBFGS(max_iter=3), by_loss=True)

    def update(self, batch: Any) -> prl.Result:
        rows = self.read(batch)
        gain = self.policy(rows.now, None).log_prob(rows.action) * self.advantages(rows)
        self.train_pi.stepper.minimise(lambda: -gain.mean())

        def error() -> Tensor:
            value: Tensor = self.value(self.read(batch).now)
            return (value - rows[RET]).square().mean()

        before = self.train_value.stepper.minimise(error)
        self.end_update()
        return prl.Result({"value_error": before})


@dataclass(frozen=True)
class LaterAndLater(prl.UpdatePlan):
    """Updates when a rollout is full, or after increasing numbers of transitions."""

    def phases_due(self, collected: Any) -> int:
        return int(collected.is_full or collected.after in (12, 24, 48, 96))


class FromTheGroundUp(prl.Algorithm):
    """An algorithm that extends the base class of all algorithms."""

    sources: ClassVar[Mapping[str, prl.Needs]] = {"main": prl.Needs("rollout")}

    lr: NonNegative = 1e-3

    def build(self) -> None:
        self.pi = self.actor.make("policy", prl.heads.Policy(), acts=True)
        self.value = self.actor.make("value", prl.heads.StateValue(), acts=True)
        self.trained = self.train("both", self.pi, self.value)

    def make_explorer(self) -> prl.Explorer:
        return prl.Sample()

    def update_plan(self) -> prl.UpdatePlan:
        return LaterAndLater()

    def policy(self, view: prl.View, exploration: prl.Exploration) -> prl.outputs.Distribution:
        policy: prl.outputs.Distribution = self.pi(view)
        return policy

    def act(self, view: prl.View, exploration: prl.Exploration) -> tuple[Tensor, dict[str, Tensor]]:
        if exploration.deterministic:
            return self.pi(view).mode(), {}
        action, log_prob = self.pi(view).sample_with_log_prob(exploration.generator)
        return action, {VAL: self.value(view), LOGP: log_prob}

    def batches(self, source: prl.Storage) -> Any:
        return source.generate_batches(2, None, 1)

    def losses(self, rows: prl.Rows) -> prl.Losses:
        gain = self.pi(rows.now).log_prob(rows.action) * rows[RET]
        return prl.Losses({self.trained: (self.value(rows.now) - rows[RET]).square().mean() - gain.mean()})


class SpectralActor(prl.OffPolicyActor):
    """An actor that adds a hyper-parameter, and has another default."""

    layer_norm: bool = True
    power_iterations: Count = 1

    def linear(self, inputs: int, outputs: int) -> nn.Module:
        return spectral_norm(super().linear(inputs, outputs), n_power_iterations=self.power_iterations)


class ClippingBuffer(prl.PERBuffer):
    """A storage that adds a hyper-parameter, declared where type checkers look for it, and counts."""

    clipped = 0

    def __init__(self, *context: Any, clip: Positive = 1.0, **others: Any) -> None:
        super().__init__(*context, **others)
        self.clip = clip

    def insert_transition(self, sample: Any, envs: Any = None) -> None:
        self.clipped += int((abs(sample[REW]) > self.clip).sum())
        super().insert_transition({**sample, REW: sample[REW].clip(-self.clip, self.clip)}, envs)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"clipped": self.clipped}

    def load_state_dict(self, state: Any) -> None:
        self.clipped = state["clipped"]
        super().load_state_dict({name: value for name, value in state.items() if name != "clipped"})


OFF_POLICY: dict[str, Any] = {
    "start_steps": 20,
    "update_every": 4,
    "mini_batch_size": 8,
    "test_every": 50,
    "num_test_episodes": 1,
}
DQN = prl.DQN.create_factory(**OFF_POLICY)


def composed(algorithm: Any = DQN, actor: Any = None, storage: Any = None) -> prl.Scheme:
    """A scheme of the given parts and default ones."""
    return prl.Scheme(
        algorithm,
        actor or prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        storage or prl.PERBuffer.create_factory(size=50, n_step=2, alpha=0.6),
        prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
        seed=3,
    )


def on_policy(algorithm: prl.Factory[prl.Algorithm]) -> prl.Scheme:
    """A scheme of an algorithm that learns from rollouts."""
    return composed(algorithm, prl.OnPolicyActor.create_factory(), prl.GAEBuffer.create_factory(size=20))


SCHEMES: dict[str, Callable[[], prl.Scheme]] = {
    "Waves": lambda: composed(actor=prl.OffPolicyActor.create_factory(feature_extractor=Waves, hidden_sizes=(8,))),
    "Decaying": lambda: composed(
        actor=prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory=("gru", Decaying), memory_size=8),
        storage=prl.ReplayBuffer.create_factory(size=50, sequences=prl.Sequences(4, burn_in=2)),
    ),
    "ExpectileDQN": lambda: composed(ExpectileDQN.create_factory(**OFF_POLICY)),
    "Sticky": lambda: composed(prl.DQN.create_factory(explorer=Sticky(0.5, prl.EpsilonGreedy(0.2)), **OFF_POLICY)),
    "Halving": lambda: composed(prl.DQN.create_factory(lr=Halving(1e-3, every=30), **OFF_POLICY)),
    "Lion": lambda: composed(prl.DQN.create_factory(optimizer=Lion(beta2=0.9), lr=1e-4, **OFF_POLICY)),
    "ConservativeDQN": lambda: composed(ConservativeDQN.create_factory(conservatism=0.5, **OFF_POLICY)),
    "SoftQLearning": lambda: composed(SoftQLearning.create_factory(entropy=0.3, **OFF_POLICY)),
    "FittedValues": lambda: on_policy(FittedValues.create_factory(lr=1e-3, test_every=0)),
    "FromTheGroundUp": lambda: on_policy(FromTheGroundUp.create_factory(lr=1e-3, test_every=0)),
    "SpectralActor": lambda: composed(actor=SpectralActor.create_factory(hidden_sizes=(8,), power_iterations=2)),
    "ClippingBuffer": lambda: composed(storage=ClippingBuffer.create_factory(size=50, clip=0.5, alpha=0.6)),
}


def main(command: str, folder: Path) -> None:
    """Train and stop, or continue."""
    for name, make in SCHEMES.items():
        if command == "continue":
            continued = prl.Learner.resume(folder / name, scheme=make())
            continued.run()
            continued.close()
            continue
        whole = prl.Learner(make(), target_steps=120, log_dir=folder / f"{name}-whole")
        whole.run()
        whole.close()
        stopped = prl.Learner(make(), target_steps=120, log_dir=folder / name)
        while stopped.scheme.steps < 60:
            stopped.step()
        stopped.save_checkpoint()
        stopped.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

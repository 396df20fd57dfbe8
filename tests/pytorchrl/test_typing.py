"""Type checkers know the arguments of every component's ``create_factory``: mypy checks calls of all of them."""

import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from pytorchrl.agent.envs.vec_env import VecEnv
from storages.component.factory import Component, FieldComponent
from tests.support import own_parts

BASES = (FieldComponent, prl.Storage, VecEnv)
COMPONENTS = sorted(
    cls.__name__
    for cls in (getattr(prl, name) for name in prl.__all__)
    # Actors are created from subclasses of `Actor`, which inherit its `__init__`.
    if isinstance(cls, type) and issubclass(cls, BASES) and not inspect.isabstract(cls) and cls is not prl.Actor
)
REQUIRED = {"size": 9, "directory": "here", "env": "CartPole-v1"}


def hyper_parameters_of(name: str) -> dict[str, Any]:
    """Arguments of a call with their default values, from the signature."""
    cls: type[Component] = getattr(prl, name)
    parameters = inspect.signature(cls.create_factory).parameters.values()
    values = {p.name: REQUIRED.get(p.name, p.default) for p in parameters}
    return {
        name: value
        for name, value in values.items()
        if value is None or isinstance(value, bool | int | float | str | tuple)
    }


def script() -> str:
    """Two calls of each component that are right, and three that are wrong."""
    lines = ["import pytorchrl as prl"]
    for name in COMPONENTS:
        given = {key: value for key, value in REQUIRED.items() if key in hyper_parameters_of(name)}
        right = ", ".join(f"{key}={value!r}" for key, value in given.items())
        everything = ", ".join(f"{key}={value!r}" for key, value in hyper_parameters_of(name).items())
        separator = ", " if right else ""
        lines += [
            f"made_{name}: prl.Factory[prl.{name}] = prl.{name}.create_factory({right})",
            f"prl.{name}.create_factory({everything})",
            f"prl.{name}.create_factory({right}{separator}misspelt=1)  # wrong",
            f"prl.{name}.create_factory({right}{separator}device='cpu')  # wrong",
            f"prl.{name}.create_factory({right}{separator}actor=None)  # wrong",
        ]
    return "\n".join(lines) + "\n"


OWN = """
from typing import ClassVar

from storages.component.factory import FieldComponent
from storages.component.hyper_parameters import NonNegativeOrSchedule, UnitInterval

class Own(prl.PERBuffer):
    def insert_transition(self, sample: object, envs: object = None) -> None: ...

Own.create_factory(9, alpha=0.5)
Own.create_factory(9, alpa=0.5)  # wrong
prl.PERBuffer.create_factory(9, alpha="much")  # wrong
prl.PERBuffer.create_factory()  # wrong

class OwnBuffer(prl.PERBuffer):
    clip: UnitInterval = 1.0

OwnBuffer.create_factory(9, clip=0.5, alpha=0.5)
OwnBuffer.create_factory(9, klip=0.5)  # wrong
OwnBuffer.create_factory(9, clip="much")  # wrong

class OwnDQN(prl.DQN):
    conservatism: UnitInterval = 0.5

own: prl.Factory[OwnDQN] = OwnDQN.create_factory(conservatism=1.0, gamma=0.9, explorer=prl.Boltzmann(1.0))
OwnDQN.create_factory(conservatsm=1.0)  # wrong
OwnDQN.create_factory(gama=0.9)  # wrong
OwnDQN.create_factory(explorer=prl.Sample)  # wrong

class OwnActor(prl.OnPolicyActor):
    power_iterations: int = 1

OwnActor.create_factory(power_iterations=2, hidden_sizes=(8,))
OwnActor.create_factory(power_iteration=2)  # wrong
OwnActor.create_factory(memory="gruu")  # wrong

class Base(FieldComponent):
    context = ("device", "envs")
    gamma: UnitInterval = 0.99
    on_policy: ClassVar[bool] = True

    def __init__(self, device: str, envs: object) -> None: ...

class Derived(Base):
    lr: NonNegativeOrSchedule = 1e-3
    sequences: prl.Sequences | None = None
    storage: prl.Factory[prl.Storage] = prl.ReplayBuffer.create_factory(9)

derived: prl.Factory[Derived] = Derived.create_factory(
    gamma=1, lr=prl.LinearSchedule(1, 0), sequences=prl.Sequences(3), storage=prl.PERBuffer.create_factory(9)
)
Derived.create_factory(gama=1)  # wrong
Derived.create_factory(device="cpu")  # wrong
Derived.create_factory(on_policy=False)  # wrong
Derived.create_factory(lr="much")  # wrong
Derived.create_factory(storage=prl.VecEnv.create_factory("CartPole-v1"))  # wrong
"""


@pytest.mark.long
def test_mypy_rejects_misspelt_hyper_parameters_of_every_component(tmp_path: Path) -> None:
    algorithms = {"BCQ", "DQN", "GAIL", "IQN", "PPO", "QRDQN", "REINFORCE", "SAC", "TD3", "TRPO", "BehaviourCloning"}
    others = {"OnPolicyActor", "OffPolicyActor", "ReplayBuffer", "GAEBuffer", "PersistentEpisodicBuffer", "VecEnv"}
    assert algorithms | others <= set(COMPONENTS)
    file = tmp_path / "script.py"
    file.write_text(script() + OWN)
    # An annotated script of a user has no errors.
    own = shutil.copy(own_parts.__file__, tmp_path / "own_parts.py")
    packages = Path(prl.__file__).parents[1]
    # With the settings and the cache of `make check`, so that torch is not analysed again.
    run = subprocess.run(
        [sys.executable, "-m", "mypy", str(file), own],
        env=os.environ | {"MYPYPATH": str(packages)},
        cwd=packages,
        capture_output=True,
        text=True,
        check=False,
    )
    wrong = {number for number, line in enumerate(file.read_text().splitlines(), 1) if line.endswith("# wrong")}
    errors = [line for line in run.stdout.splitlines() if ": error: " in line]
    assert not [line for line in errors if Path(line.split(":")[0]).name == "own_parts.py"], run.stdout
    assert {int(line.split(":")[1]) for line in errors} == wrong, run.stdout + run.stderr
    assert all("[call-arg]" in line or "[arg-type]" in line for line in errors), run.stdout


@pytest.mark.parametrize("name", COMPONENTS)
def test_the_signature_of_create_factory_shows_no_context(name: str) -> None:
    cls = getattr(prl, name)
    signature = inspect.signature(cls.create_factory)
    assert not {"self", "cls", "device", "actor", "algorithm", "envs", "args", "kwargs"} & signature.parameters.keys()
    assert signature.return_annotation == prl.Factory[cls]
    assert all(parameter.annotation is not parameter.empty for parameter in signature.parameters.values())

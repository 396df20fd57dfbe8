"""Modules of PyTorchRL's storages hold the classes here, and a storage written for PyTorchRL learns in a run."""

import importlib
import inspect
import pkgutil
from typing import Any

import pytest

import pytorchrl as prl
import pytorchrl.agent.storages
import storages
from storages import transition
from storages.transition import OBS, REW

OFF_POLICY = {
    "replay_buffer": "ReplayBuffer",
    "nstep_buffer": "NStepReplayBuffer",
    "per_buffer": "PERBuffer",
    "ere_buffer": "EREBuffer",
    "her_buffer": "HERBuffer",
}
ON_POLICY = {
    "vanilla_on_policy_buffer": "VanillaOnPolicyBuffer",
    "gae_buffer": "GAEBuffer",
    "vtrace_buffer": "VTraceBuffer",
}
CLASSES_OF_MODULES = {
    "base": "Storage",
    **{f"off_policy.{module}": name for module, name in OFF_POLICY.items()},
    **{f"on_policy.{module}": name for module, name in ON_POLICY.items()},
}


@pytest.mark.parametrize(("module", "name"), CLASSES_OF_MODULES.items())
def test_a_module_of_pytorchrl_holds_the_same_class_as_the_package(module: str, name: str) -> None:
    cls = getattr(importlib.import_module(f"pytorchrl.agent.storages.{module}"), name)
    assert inspect.isclass(cls)
    assert cls is getattr(storages, name)
    assert cls is getattr(pytorchrl.agent.storages, name)
    parent = importlib.import_module(f"pytorchrl.agent.storages.{module}".rpartition(".")[0])
    assert cls is getattr(parent, name)


@pytest.mark.parametrize(
    "name",
    [
        *("ACT", "ACTPROBS", "ADV", "DONE", "DONE2", "IADV", "INFO", "IREW", "IRET", "IVAL", "LOGP", "MASK"),
        *("OBS", "OBS2", "RET", "REW", "RHS", "RHS2", "VAL"),
    ],
)
def test_keys_of_samples_are_where_code_for_pytorchrl_takes_them_from(name: str) -> None:
    assert getattr(prl, name) == getattr(transition, name)


def test_every_module_of_the_package_is_checked() -> None:
    found = pkgutil.walk_packages(pytorchrl.agent.storages.__path__, "pytorchrl.agent.storages.")
    modules = {each.name.removeprefix("pytorchrl.agent.storages.") for each in found if not each.ispkg}
    assert modules == set(CLASSES_OF_MODULES)


class LoggedReplay(prl.ReplayBuffer):
    """Reports the mean reward of each batch, as a storage of PyTorchRL does."""

    def __init__(self, size, device, actor, algorithm, envs, scale=1.0):  # type: ignore[no-untyped-def]
        super().__init__(size, device, actor, algorithm, envs)
        self.scale = scale

    @classmethod
    def create_factory(cls, size, scale=1.0):  # type: ignore[no-untyped-def,override]
        def create_storage(device, actor, algorithm, envs):  # type: ignore[no-untyped-def]
            return cls(size, device, actor, algorithm, envs, scale)

        return create_storage

    def insert_transition(self, sample):  # type: ignore[no-untyped-def,override]
        super().insert_transition({**sample, REW: sample[REW] * self.scale})

    def after_gradients(self, batch, info):  # type: ignore[no-untyped-def]
        info = super().after_gradients(batch, info)
        info["storage/mean_reward"] = batch[REW].mean().item()
        return info


def test_a_storage_written_for_pytorchrl_learns_and_is_restored_in_a_run(tmp_path: Any) -> None:
    def scheme() -> Any:
        return prl.Scheme(
            prl.DQN.create_factory(start_steps=20, num_mini_batch=1, mini_batch_size=8, update_every=10),
            prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
            LoggedReplay.create_factory(size=100, scale=0.5),  # type: ignore[no-untyped-call]
            prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
            seed=0,
        )

    learner = prl.Learner(scheme(), target_steps=60, log_dir=tmp_path)
    learner.run()
    storage = learner.scheme.storage
    assert isinstance(storage, LoggedReplay)
    assert storage.inserted == 60
    assert (storage.data[REW] == 0.5).all()
    restored = prl.Learner.resume(tmp_path, scheme=scheme(), target_steps=80)
    restored.run()
    assert restored.scheme.storage.inserted == 80
    assert (restored.scheme.storage.data[REW] == 0.5).all()
    assert (restored.scheme.storage.data[OBS][:30] == storage.data[OBS]).all()

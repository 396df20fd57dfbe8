"""Classes of a user extend algorithms, actors and storages without repeating their hyper-parameters."""

from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from pytorchrl.agent.other_names import ACTOR_NAMES, ALGORITHM_NAMES
from storages.component.declared import hyper_parameters_of
from storages.component.hyper_parameters import UnitInterval
from storages.component.other_names import STORAGE_NAMES


class MyDQN(prl.DQN):
    """Adds a hyper-parameter, and changes the default of another."""

    bonus: float = 0.0
    polyak: UnitInterval = 0.5


class MyActor(prl.OffPolicyActor):
    """Adds a hyper-parameter in its signature."""

    def __init__(self, *context: Any, note: str = "", **others: Any):
        super().__init__(*context, **others)
        self.note = note


class MyBuffer(prl.PERBuffer):
    """Adds a hyper-parameter."""

    def __init__(self, *context: Any, note: str = "", **others: Any):
        super().__init__(*context, **others)
        self.note = note


def scheme(**hyper_parameters: Any) -> prl.Scheme:
    return prl.Scheme(
        algo_factory=MyDQN.create_factory(bonus=0.1, lr=1e-3, start_steps=20, **hyper_parameters),
        actor_factory=MyActor.create_factory(hidden_sizes=(8,), note="small"),
        storage_factory=MyBuffer.create_factory(size=100, alpha=0.6, note="kept"),
        train_envs_factory=prl.VecEnv.create_factory("CartPole-v1"),
        seed=1,
    )


def test_a_run_of_extended_classes_trains_and_is_resumed_from_its_folder(tmp_path: Path) -> None:
    learner = prl.Learner(scheme(), target_steps=60, log_dir=tmp_path / "run")
    algorithm = learner.scheme.algorithm
    assert (algorithm.bonus, algorithm.polyak, algorithm.lr) == (0.1, 0.5, 1e-3)
    assert learner.scheme.storage.note == "kept"
    learner.run()
    resumed = prl.Learner.resume(tmp_path / "run", target_steps=80)
    assert type(resumed.scheme.algorithm) is MyDQN
    assert (resumed.scheme.algorithm.bonus, resumed.scheme.actor.note) == (0.1, "small")
    resumed.run()


@pytest.mark.parametrize(
    ("cls", "name", "hint"),
    [
        (MyDQN, "learning_rate", "here it is lr"),
        (prl.SAC, "learning_rate", "here it is lr_pi and lr_q"),
        (prl.SAC, "tau", "here it is polyak, which is 1 - tau"),
        (prl.SAC, "ent_coef", "here it is initial_alpha"),
        (prl.PPO, "ent_coef", "here it is entropy_coef"),
        (prl.PPO, "n_steps", "here it is size of the storage, the steps of a rollout"),
        (prl.PPO, "batch_size", "here it is num_mini_batch, the transitions of a rollout divided by the batch size"),
        (prl.DQN, "batch_size", "here it is mini_batch_size"),
        (prl.DQN, "buffer_size", "here it is size of the storage"),
        (prl.DQN, "exploration_fraction", "here it is epsilon, which may be a LinearSchedule"),
        (prl.DQN, "replay_start_size", "here it is start_steps"),
        (prl.DQN, "clip_delta", "here it is huber_threshold"),
        (prl.PPO, "clip_range", "here it is clip_param"),
        (prl.OnPolicyActor, "net_arch", "here it is hidden_sizes"),
        (prl.PPO, "adam_epsilon", r"here it is optimizer=Adam\(eps=\.\.\.\)"),
        (prl.DQN, "optimizer_class", r"here it is optimizer, such as Adam\(eps=1e-5\) or RMSprop\(\)"),
        (prl.TRPO, "learning_rate", "here it is lr_value"),
        (prl.TRPO, "target_kl", "here it is max_kl"),
        (prl.TD3, "action_noise", "here it is exploration_noise"),
        (prl.IQN, "quantile_thresholds_K", "here it is num_action_quantiles"),
        (prl.IQN, "risk_measure_function", "here it is risk, such as risk_measures.CVaR"),
        (prl.MunchausenDQN, "munchausen_tau", "here it is temperature"),
        (prl.SAC, "action_noise", "here it is explorer"),
        (prl.ACER, "n_times_replay", "here it is replay_ratio"),
        (prl.DQN, "gama", "did you mean 'gamma'"),
    ],
)
def test_hyper_parameter_names_of_other_libraries_are_refused_with_our_names(cls: Any, name: str, hint: str) -> None:
    with pytest.raises(TypeError, match=f"{cls.__name__}: unknown hyper-parameter '{name}'; {hint}"):
        cls.create_factory(**{name: 1})


@pytest.mark.parametrize(
    ("table", "classes"),
    [
        (
            ALGORITHM_NAMES,
            (
                prl.DQN,
                prl.QRDQN,
                prl.MunchausenIQN,
                prl.PPO,
                prl.SAC,
                prl.TD3,
                prl.TRPO,
                prl.MPO,
                prl.ACER,
                prl.PCL,
            ),
        ),
        (ACTOR_NAMES, (prl.OnPolicyActor, prl.OffPolicyActor)),
        (STORAGE_NAMES, (prl.PERBuffer, prl.GAEBuffer, prl.VTraceBuffer)),
    ],
)
def test_every_hyper_parameter_for_which_a_name_is_suggested_exists(table: Any, classes: Any) -> None:
    ours = {name for cls in classes for name in hyper_parameters_of(cls)}
    assert {condition for here in table.values() for condition in here if condition} <= ours

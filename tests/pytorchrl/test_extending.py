"""Names of hyper-parameters of other libraries are answered with ours, also by classes of a user."""

import inspect
import re
from typing import Any

import pytest

import pytorchrl as prl
from pytorchrl.agent.algorithms import Algorithm
from pytorchrl.agent.other_names import ACTOR_NAMES, ALGORITHM_NAMES
from storages.component.declared import hyper_parameters_of
from storages.component.hyper_parameters import UnitInterval
from storages.component.other_names import hint_for
from storages.other_names import STORAGE_NAMES


class MyDQN(prl.DQN):
    """Adds a hyper-parameter, and changes the default of another."""

    bonus: float = 0.0
    polyak: UnitInterval = 0.5


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
        (prl.DQN, "seed", "here it is seed of Scheme"),
        (prl.DQN, "dueling", "here it is dueling of the actor"),
        (prl.TD3, "target_network_frequency", "here it is (no setting: target networks|target_update_interval)"),
        (prl.OffPolicyActor, "policy_kwargs", "here it is several hyper-parameters of the actor"),
        (prl.ReplayBuffer, "optimize_memory_usage", "here it is no setting: each observation is kept once"),
        (prl.ReplayBuffer, "device", "here it is device of Scheme"),
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


KINDS = {
    "algorithm": (Algorithm, ALGORITHM_NAMES),
    "actor": (prl.Actor, ACTOR_NAMES),
    "storage": (prl.Storage, STORAGE_NAMES),
}
DECLARED = {
    kind: {
        cls.__name__: hyper_parameters_of(cls)
        for cls in (getattr(prl, name) for name in prl.__all__)
        if isinstance(cls, type) and issubclass(cls, base)
    }
    for kind, (base, _) in KINDS.items()
}
OWNERS = DECLARED["storage"] | {kind: set().union(*classes.values()) for kind, classes in DECLARED.items()}
OWNERS |= {cls.__name__: set(inspect.signature(cls).parameters) for cls in (prl.Scheme, prl.Learner)}
OWNERS["VecEnv"] = set(hyper_parameters_of(prl.VecEnv))


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind, (_, table) in KINDS.items() for name in table],
)
def test_every_suggested_hyper_parameter_exists(kind: str, name: str) -> None:
    table, classes = KINDS[kind][1], DECLARED[kind]
    hints = {cls: hint_for(name, declared, table) for cls, declared in classes.items() if name not in declared}
    texts = {f"here it is {text}. " for text in table[name].values()}
    assert set(hints.values()) - {""} <= texts
    if len(hints) == len(classes):
        assert set(hints.values()) >= texts, "an answer that no class gives"
    for cls, hint in hints.items():
        # Such as "optimizer=Adam(eps=...)", "size of the storage" or "gae_lambda of GAEBuffer".
        found = re.match(r"here it is (\w+)(?:.* of (?:the )?(algorithm|actor|storage|[A-Z]\w+))?", hint)
        if found is not None and "hyper-parameters" not in hint and "no setting" not in hint:
            assert found[1] in (OWNERS[found[2]] if found[2] else classes[cls]), cls

"""`prl.compose` makes a scheme of an algorithm and an environment, and chooses the other parts."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import pytorchrl as prl


def test_an_algorithm_given_by_name_is_composed_with_its_preset() -> None:
    scheme = prl.compose("sac", "Pendulum-v1", seed=3)
    try:
        assert scheme.config["algorithm"]["hyper_parameters"]["gamma"] == 0.98, "the value of the preset for Pendulum"
        assert type(scheme.storage) is prl.ReplayBuffer
        assert scheme.run_seed == 3
    finally:
        scheme.close()


def test_classes_mean_the_same_as_their_names() -> None:
    by_class = prl.compose(prl.SAC, "Pendulum-v1", storage=prl.PERBuffer, actor=prl.OffPolicyActor)
    by_name = prl.compose("SAC", "Pendulum-v1", storage="PER", actor="OffPolicyActor")
    try:
        assert by_class.config == by_name.config
    finally:
        by_class.close()
        by_name.close()


def test_a_class_whose_name_another_one_has_is_refused() -> None:
    first, _second = (type("TwiceNamed", (prl.SAC,), {"__module__": __name__}) for _ in range(2))
    with pytest.raises(prl.CompositionError, match=r"more than one class TwiceNamed; give a factory, TwiceNamed"):
        prl.compose(first, "Pendulum-v1")


def test_hyper_parameters_beside_the_parts_are_refused_with_what_to_write() -> None:
    def message(*parts: Any, **others: Any) -> str:
        with pytest.raises(TypeError) as refused:
            prl.compose(*parts, **others)
        return str(refused.value)

    said = message("PPO", "CartPole-v1", lr=1e-3, learning_rate=1e-3)
    assert said.startswith("compose: there is no argument learning_rate, lr; learning_rate: here it is")
    assert said.endswith('prl.compose({"name": "PPO", "lr": 0.001}, "CartPole-v1")')
    said = message(prl.DQN, "CartPole-v1", size=50, test_every=5, actor={"hidden_sizes": (8,)}, dueling=True)
    assert '{"name": "DQN", "test_every": 5}, "CartPole-v1", storage={"size": 50}, actor={"dueling": True' in said
    said = message(prl.DQN.create_factory(), "CartPole-v1", lr=1e-3)
    assert said.endswith('prl.compose(prl.DQN.create_factory(..., lr=0.001), "CartPole-v1")')
    said = message("DQN", "CartPole-v1", env_kwargs={"max_episode_steps": 3})
    assert '{"name": "CartPole-v1", "env_kwargs": {\'max_episode_steps\': 3}}' in said
    assert "learning_rat" in message("DQN", "CartPole-v1", learning_rat=1)


def test_a_factory_of_an_algorithm_says_that_its_preset_is_not_used(capsys: pytest.CaptureFixture[str]) -> None:
    prl.compose(prl.DQN.create_factory(), "CartPole-v1").close()
    assert "the preset DQN, CartPole-v1 is not used, as algorithm is a factory" in capsys.readouterr().out
    prl.compose({"name": "DQN", "test_every": 7}, "CartPole-v1").close()
    assert "not used" not in capsys.readouterr().out


def test_dicts_of_settings_change_the_preset_where_they_say_so() -> None:
    with (
        prl.compose({"name": "sac", "lr_q": 2e-3}, "Pendulum-v1", actor={"hidden_sizes": (8,)}) as scheme,
        prl.compose("SAC", "Pendulum-v1") as by_preset,
    ):
        algorithm, preset = (one.config["algorithm"]["hyper_parameters"] for one in (scheme, by_preset))
        assert preset["gamma"] == 0.98
        assert algorithm == preset | {"lr_q": 2e-3}
        assert scheme.config["actor"]["hyper_parameters"]["hidden_sizes"] == [8]
    with prl.compose(prl.DQN, {"name": "CartPole-v1", "num_envs": 2}, storage={"name": "PER", "size": 64}) as other:
        assert type(other.storage) is prl.PERBuffer
        assert (other.storage.capacity, other.envs.num_envs) == (128, 2)


def test_environments_of_ones_own_say_which_settings_of_the_preset_they_replace(
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = prl.VecEnv.create_factory("Acrobot-v1", num_envs=2)
    prl.compose("PPO", own).close()
    said = "not used of the preset PPO, Acrobot-v1: the wrapper NormalizeReward, num_envs=16"
    assert said in capsys.readouterr().out
    limit = ("TimeLimit", {"max_episode_steps": 50})
    prl.compose("PPO", {"name": "Acrobot-v1", "num_envs": 2, "wrappers": [limit]}).close()
    assert "not used of the preset PPO, Acrobot-v1: the wrapper NormalizeReward, as" in capsys.readouterr().out
    prl.compose("PPO", {"name": "Acrobot-v1", "wrappers": ["NormalizeReward", limit]}).close()
    prl.compose("PPO", "Acrobot-v1", num_envs=2).close()
    assert "not used" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"algorithm": {"lr": 1e-3}}, r"algorithm must be a name such as 'PPO', a class, .* a dict with its name"),
        ({"env": {"num_envs": 2}}, r"env must be a name such as 'CartPole-v1', a callable"),
        ({"env": {"env": gym.Env}}, r"got .*; write {\"name\": Env, ...}"),
        ({"actor": [64, 64]}, r"actor must be a name such as 'OnPolicyActor', .* got \[64, 64\]"),
        ({"storage": {"name": 3}}, r"storage must be a name such as 'GAEBuffer'"),
    ],
)
def test_parts_of_other_types_are_refused_with_what_to_write(given: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"algorithm": "DQN", "env": "CartPole-v1"} | given
    with pytest.raises(TypeError, match=message):
        prl.compose(**arguments)  # type: ignore[arg-type]


def test_given_factories_are_used_unchanged_and_without_a_preset() -> None:
    algorithm = prl.PPO.create_factory(lr=1e-2)
    storage = prl.GAEBuffer.create_factory(size=32)
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=(8,))
    envs = prl.VecEnv.create_factory("CartPole-v1", num_envs=4)
    scheme = prl.compose(algorithm, envs, actor=actor, storage=storage)
    try:
        config = scheme.config
        assert config["algorithm"] == algorithm.config
        assert config["storage"] == storage.config
        assert config["actor"] == actor.config
        assert config["train_envs"] == envs.config
    finally:
        scheme.close()


def test_the_default_capacity_of_a_storage_is_shared_by_all_environments() -> None:
    class OwnCartPole(gym.envs.classic_control.CartPoleEnv):  # type: ignore[type-arg]
        """An environment that has no id."""

    for algorithm, transitions in (("ppo", 2_048), (prl.DQN.create_factory(), 100_000)):
        scheme = prl.compose(algorithm, OwnCartPole, num_envs=2)
        try:
            assert scheme.storage.capacity == transitions
        finally:
            scheme.close()


def test_a_storage_factory_with_required_arguments_is_composed(tmp_path: Path) -> None:
    storage = prl.PersistentEpisodicBuffer.create_factory(size=1_000, directory=tmp_path / "episodes")
    scheme = prl.compose("sac", "Pendulum-v1", storage=storage)
    try:
        assert type(scheme.storage) is prl.PersistentEpisodicBuffer
    finally:
        scheme.close()


def test_a_storage_can_be_given_by_its_short_name() -> None:
    scheme = prl.compose("DQN", "CartPole-v1", storage="per")
    try:
        assert type(scheme.storage) is prl.PERBuffer
    finally:
        scheme.close()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"algorithm": "DQQN"}, "there is no algorithm 'DQQN'; did you mean DQN"),
        ({"storage": "perbufer"}, "there is no storage 'perbufer'; did you mean PERBuffer"),
        ({"algorithm": "SAC"}, "SAC needs a Box action space"),
        ({"storage": prl.GAEBuffer.create_factory(size=8)}, "DQN learns from replayed transitions"),
        (
            {"env": prl.VecEnv.create_factory("CartPole-v1"), "num_envs": 2},
            "num_envs conflicts with the factory given as env",
        ),
    ],
)
def test_unknown_or_incompatible_parts_are_refused_by_name(given: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"algorithm": "DQN", "env": "CartPole-v1"} | given
    with pytest.raises(ValueError, match=message):
        prl.compose(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "here"),
    [
        ({"storage": "HerReplayBuffer"}, r"that of stable-baselines3 is here prl\.HERBuffer"),
        ({"algorithm": "MaskablePPO"}, r'prl\.PPO with action_mask="action_mask" of the actor'),
        ({"algorithm": {"name": "RecurrentPPO"}}, r'prl\.PPO with memory="lstm"'),
        ({"algorithm": "recurrent_ppo"}, r'prl\.PPO with memory="lstm"'),
        ({"actor": "MlpPolicy"}, r"prl\.OnPolicyActor\.create_factory\(\)"),
        ({"algorithm": {"name": "DDPG", "explorer": "NormalActionNoise(0, 0.1)"}}, r"explorer=prl\.GaussianNoise"),
        ({"env": {"name": "CartPole-v1", "wrappers": ["VecNormalize"]}}, "normalize_observations=True of the actor"),
        ({"env": {"name": "CartPole-v1", "wrappers": ["NormalizeRewards"]}}, "did you mean 'NormalizeReward'"),
    ],
)
def test_texts_that_name_parts_of_other_libraries_are_answered_as_imports_are(
    given: dict[str, object], here: str
) -> None:
    arguments: dict[str, object] = {"algorithm": "DQN", "env": "CartPole-v1"} | given
    with pytest.raises(ValueError, match=here) as raised:
        prl.compose(**arguments)  # type: ignore[arg-type]
    assert "choose from" not in str(raised.value)


def test_an_argument_that_nothing_is_known_of_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        TypeError, match=r"there is no argument flavour; there are algorithm, env, actor, .*, seed"
    ) as raised:
        prl.compose("PPO", "CartPole-v1", flavour=1)
    assert '"lr"' not in str(raised.value)


def test_callbacks_of_a_preset_are_named_because_a_scheme_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ale_py", reason="the package ale-py is not installed")
    prl.compose("BBF", "ALE/Pong-v5", actor={"feature_extractor": "impala_convolutions"}).close()
    said = "the preset BBF, games of Atari has ResetNetworks, SetHyperParameter, SetHyperParameter, which Learner takes"
    assert said in " ".join(capsys.readouterr().out.split())

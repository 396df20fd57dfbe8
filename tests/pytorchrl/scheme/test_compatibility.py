"""Incompatible parts are refused by an error that names a remedy, and compatible ones are accepted."""

from typing import Any, ClassVar

import pytest

import pytorchrl as prl
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.scheme.compatibility import check_composition, check_roles
from storages.component.factory import Factory

ENVS = prl.VecEnv.create_factory("CartPole-v1")
OFF, ON = prl.OffPolicyActor.create_factory(), prl.OnPolicyActor.create_factory()
RECURRENT = prl.OffPolicyActor.create_factory(memory="gru")
REPLAY, ROLLOUT = prl.ReplayBuffer.create_factory(size=8), prl.GAEBuffer.create_factory(size=8)
SEQUENCES = prl.PERBuffer.create_factory(size=8, sequences=prl.Sequences(4))
PACKED = prl.ReplayBuffer.create_factory(size=8, sequences=prl.Episodes(packed=True))


class Relearning(prl.PPO):
    """Learns from a rollout, and from a replay buffer if there is one."""

    sources: ClassVar[Any] = {"main": Needs("rollout"), "old": Needs("replay", collected=False, optional=True)}


class FromData(prl.DQN):
    """Learns only from a data set."""

    sources: ClassVar[Any] = {"main": Needs("replay", collected=False)}


class OfSequences(prl.DQN):
    """Learns from sequences, with or without a memory."""

    sources: ClassVar[Any] = {"main": Needs("replay", sequences=True)}


class Unordered(prl.ReplayBuffer):
    """A replay buffer that does not know its newest steps."""

    knows_newest_steps = False


def check(algorithm: Any, actor: Any, storage: Any, collects: bool = True, **sources: Any) -> None:
    check_composition(algorithm.create_factory(), actor, {"main": storage} | sources, collects=collects)


REFUSALS: dict[str, tuple[Any, Any, Any, dict[str, Any], str]] = {
    "replay for a rollout": (
        prl.PPO, ON, REPLAY, {},
        "PPO learns on-policy, but ReplayBuffer replays steps of older policies; GAEBuffer and VanillaOnPolicyBuffer",
    ),
    "rollout for a replay": (
        prl.SAC, OFF, ROLLOUT, {},
        "SAC learns from replayed transitions, but GAEBuffer holds one rollout of the current policy; ReplayBuffer",
    ),
    "rollout for behaviour cloning": (
        prl.BehaviourCloning, OFF, ROLLOUT, {},
        "BehaviourCloning learns from replayed transitions, but GAEBuffer holds one rollout",
    ),
    "a memory and single transitions": (
        prl.DQN, RECURRENT, REPLAY, {},
        r"OffPolicyActor has a memory \(gru\), which learns from sequences, but ReplayBuffer makes batches of single "
        r"transitions; give it sequences=Sequences\(length=...\) or sequences=Episodes\(\)",
    ),
    "sequences and no memory": (
        prl.DQN, OFF, SEQUENCES, {},
        r"PERBuffer makes batches of Sequences\(.*\), but OffPolicyActor has no memory to learn from them; give it "
        r'memory="gru", or the storage sequences=None',
    ),
    "packed episodes and no memory": (
        prl.TD3, OFF, PACKED, {}, r"ReplayBuffer makes batches of Episodes\(.*packed=True.*\), but OffPolicyActor has",
    ),
    "sequences of a rollout that is not full": (
        prl.REINFORCE, prl.OnPolicyActor.create_factory(memory="gru"),
        prl.VanillaOnPolicyBuffer.create_factory(size=8, sequence_length=4), {},
        "REINFORCE learns from partial rollouts, .* give VanillaOnPolicyBuffer sequence_length=None",
    ),
    "an unknown source": (
        prl.GAIL, ON, ROLLOUT, {"exprt": REPLAY}, "GAIL knows no source 'exprt'; it learns from 'main', 'expert'",
    ),
    "a missing source": (
        prl.GAIL, ON, ROLLOUT, {},
        r"GAIL needs a source 'expert'; give it sources=\{'expert': \.\.\.\}, such as from_dataset\(ReplayBuffer",
    ),
    "a rollout for another source": (
        Relearning, ON, ROLLOUT, {"old": ROLLOUT}, "Relearning learns from replayed transitions, but GAEBuffer holds",
    ),
    "a rollout without environments": (
        prl.PPO, ON, ROLLOUT, {"collects": False},
        "PPO learns from steps of its own policy; give the scheme train_envs_factory",
    ),
    "single transitions for segments": (
        prl.ACER, ON, REPLAY, {},
        "ACER learns from sequences, but ReplayBuffer makes batches of single transitions; give it sequences=Sequences",
    ),
    "segments of several steps": (
        prl.PCL, ON, prl.PERBuffer.create_factory(size=8, n_step=3, sequences=prl.Sequences(4)), {},
        "PCL sums rewards itself, but PERBuffer has n_step=3; give it n_step=1",
    ),
    "single transitions for a model of sequences": (
        prl.TDMPC2, OFF, REPLAY, {},
        "TDMPC2 learns from sequences, but ReplayBuffer makes batches of single transitions; give it sequences=",
    ),
    "several steps for a model of single ones": (
        prl.TDMPC2, OFF, prl.PERBuffer.create_factory(size=8, n_step=3, sequences=prl.Sequences(4)), {},
        "TDMPC2 learns from one-step transitions, but PERBuffer has n_step=3; give it n_step=1",
    ),
    "the newest steps of a storage that does not know them": (
        prl.ACER, ON, Unordered.create_factory(size=8, sequences=prl.Sequences(4)), {},
        "ACER learns from the newest steps in addition to replayed ones, and Unordered does not",
    ),
    "the newest steps without environments": (
        prl.PCL, ON, SEQUENCES, {"collects": False},
        "PCL learns from steps of its own policy; give the scheme train_envs_factory",
    ),
    "environments for data alone": (
        FromData, OFF, REPLAY, {},
        "FromData learns from a data set, into which no collected steps may be inserted; leave out train_envs_factory",
    ),
}  # fmt: skip


BATCHES: dict[str, tuple[Any, Any, Any, str]] = {
    "transitions": (
        prl.PPO.create_factory(num_mini_batch=17), ON, ROLLOUT,
        "PPO has num_mini_batch=17, but a rollout of GAEBuffer with num_envs=2 has only 16 transitions; choose "
        "num_mini_batch=16 or less, more environments, or a larger size of the storage",
    ),
    "sequences": (
        prl.PPO.create_factory(num_mini_batch=4), prl.OnPolicyActor.create_factory(memory="gru"), ROLLOUT,
        "PPO has num_mini_batch=4, but a rollout of GAEBuffer with num_envs=2 has only 2 sequences; choose "
        "num_mini_batch=2 or less, more environments, or a smaller sequence_length of the storage",
    ),
    "batches of the value function": (
        prl.TRPO.create_factory(value_mini_batches=17), ON, ROLLOUT, "TRPO has value_mini_batches=17, .* 16 transitions"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BATCHES)
def test_more_batches_than_rows_of_a_rollout_are_refused_at_once(name: str) -> None:
    algorithm, actor, storage, message = BATCHES[name]
    with pytest.raises(prl.CompositionError, match=f"Scheme: {message}"):
        prl.Scheme(algorithm, actor, storage, prl.VecEnv.create_factory("CartPole-v1", 2))


@pytest.mark.parametrize("name", REFUSALS)
def test_incompatible_parts_are_refused_with_a_remedy(name: str) -> None:
    algorithm, actor, storage, further, message = REFUSALS[name]
    with pytest.raises(prl.CompositionError, match=f"Scheme: {message}"):
        check(algorithm, actor, storage, **further)


@pytest.mark.parametrize(
    ("algorithm", "actor", "storage", "further"),
    [
        (prl.PPO, ON, ROLLOUT, {}),
        (prl.PPO, prl.OnPolicyActor.create_factory(memory="lstm"), ROLLOUT, {}),
        (prl.DQN, OFF, REPLAY, {}),
        (prl.DQN, OFF, REPLAY, {"collects": False}),
        (prl.DQN, RECURRENT, SEQUENCES, {}),
        *((algorithm, RECURRENT, PACKED, {}) for algorithm in (prl.DQN, prl.QRDQN, prl.SAC, prl.TD3)),
        (prl.BehaviourCloning, OFF, PACKED, {"collects": False}),
        (OfSequences, OFF, SEQUENCES, {}),
        (Relearning, ON, ROLLOUT, {}),
        (Relearning, ON, ROLLOUT, {"old": REPLAY}),
        (FromData, OFF, REPLAY, {"collects": False}),
        (prl.GAIL, ON, ROLLOUT, {"expert": REPLAY}),
        *((algorithm, actor, SEQUENCES, {}) for algorithm in (prl.ACER, prl.PCL) for actor in (ON, RECURRENT)),
        (prl.UnifiedPCL, ON, PACKED, {}),
        *((prl.TDMPC2, actor, storage, {}) for actor in (OFF, RECURRENT) for storage in (SEQUENCES, PACKED)),
        (prl.ACER, ON, prl.PersistentEpisodicBuffer.create_factory(8, "episodes", sequences=prl.Sequences(4)), {}),
        (prl.REINFORCE, ON, prl.VanillaOnPolicyBuffer.create_factory(size=8), {}),
        # Actors differ only in their defaults.
        (prl.DQN, ON, REPLAY, {}),
        (prl.PPO, OFF, ROLLOUT, {}),
    ],
)
def test_compatible_parts_are_accepted(algorithm: Any, actor: Any, storage: Any, further: dict[str, Any]) -> None:
    check(algorithm, actor, storage, **further)


@pytest.mark.parametrize("position", range(5))
@pytest.mark.parametrize("wrong", [prl.DQN, "DQN", None, prl.VecEnv.create_factory("CartPole-v1"), REPLAY])
def test_parts_in_the_wrong_place_are_refused_by_name(position: int, wrong: Any) -> None:
    given: list[Any] = [prl.DQN.create_factory(), OFF, {"main": REPLAY, "expert": REPLAY}, ENVS, ENVS]
    check_roles(*given)
    names = ["algo_factory", "actor_factory", r"sources\['expert'\]", "train_envs_factory", "test_envs_factory"]
    fits = isinstance(wrong, Factory) and wrong.cls in (prl.VecEnv if position > 2 else prl.ReplayBuffer,)
    if (wrong is None or fits) and position > 1:
        wrong = 3
    given[position] = {"main": REPLAY, "expert": wrong} if position == 2 else wrong
    with pytest.raises(prl.CompositionError, match=f"Scheme: {names[position]} must be made by create_factory"):
        check_roles(*given)


def test_a_custom_algorithm_declares_the_sources_that_it_needs() -> None:
    assert OffPolicyAlgorithm.sources["main"].kind == "replay"
    scheme = prl.Scheme(Relearning.create_factory(test_every=0), ON, ROLLOUT, ENVS, sources={"old": REPLAY})
    assert scheme.sources.keys() == {"main", "old"}
    scheme.collect(8)
    assert len(scheme.sources["old"]) == 0, "steps of the environments go only into the main source"
    scheme.close()


def test_retrace_needs_an_actor_with_action_values() -> None:
    message = "RetraceBuffer computes targets from action values, which the actor of"
    with pytest.raises(prl.CompositionError, match=message):
        prl.Scheme(prl.PPO.create_factory(), ON, prl.RetraceBuffer.create_factory(size=8), ENVS)

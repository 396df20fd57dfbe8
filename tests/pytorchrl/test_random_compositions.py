"""Any algorithm with any storage, memory, observations, actions and number of environments that it declares.

Each composition trains, is interrupted, is resumed in a new scheme, and ends in the same state as without the
interruption, bit for bit.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pytorchrl as prl
from storages.transition import IRET
from tests.support.comparison import assert_equal
from tests.support.every_algorithm import ACTIONS, OFF_POLICY, ON_POLICY, Constant, expert_data
from tests.support.memories import LinearAfterGRU, MinimalGatedUnit
from tests.support.profiles import by_profile
from tests.support.toys import Counter
from tests.support.training import saved_and_loaded

STEPS, INTERRUPTED_AT = 60, 33
WITHOUT_SHARED_BODY = (
    "TRPO",
    "GAIL",
    "AIRL",
    "AIRL on PPO",
    "SACDiscrete",
    "SACWithValue",
    "MMESAC",
    "DEMMESAC",
    "MPODiscrete",
    "IQL",
    "XQL",
)
"""Algorithms that train several networks of observations separately."""
WITH_MODELS = ("PETS", "PDDM", "MBMPC", "MBPO")
"""Algorithms that learn models of observations."""
OWN_MEMORIES = [("lstm", MinimalGatedUnit), LinearAfterGRU]
MEMORIES: dict[str, list[Any]] = {
    "DecisionTransformer": [None],
    "R2D2": ["gru", "lstm", *OWN_MEMORIES],
    "DreamerV3": ["gru"],
    "CrossQ": [None],
    "DrQV2": [None],
    "MRQ": [None],
    "SPR": [None],
    "BBF": [None],
    **{name: [None] for name in WITH_MODELS},
}
REPLAY: dict[str, Any] = {
    "ReplayBuffer": (prl.ReplayBuffer, {}),
    "NStepReplayBuffer": (prl.NStepReplayBuffer, {"n_step": 3}),
    "PERBuffer": (prl.PERBuffer, {"alpha": 0.6, "beta": 0.4, "n_step": 2}),
    "EREBuffer": (prl.EREBuffer, {"alpha": 0.6, "eta": 0.99, "cmin": 10}),
    "by rank": (prl.PERBuffer, {"alpha": 0.6, "prioritization": "rank", "uniform_share": 0.2, "error_max": 1.0}),
    "without replacement": (prl.EREBuffer, {"draws": "without replacement", "eta": 0.99, "cmin": 10}),
    "in passes": (prl.NStepReplayBuffer, {"draws": "passes", "n_step": 2}),
}
ROLLOUTS: dict[str, Any] = {
    "VanillaOnPolicyBuffer": prl.VanillaOnPolicyBuffer,
    "GAEBuffer": prl.GAEBuffer,
    "VTraceBuffer": prl.VTraceBuffer,
    "LambdaReturnBuffer": prl.LambdaReturnBuffer,
    "AverageRewardBuffer": prl.AverageRewardBuffer,
}
WINDOWS = {
    "sequences": prl.Sequences(4),
    "burn-in": prl.Sequences(4, burn_in=2, overlap=2),
    "across": prl.Sequences(5, across_episodes=True),
    "random pieces": prl.Episodes(max_steps=4),
    "episodes": prl.Episodes(whole=False),
    "packed": prl.Episodes(packed=True, whole=False),
}


@dataclass(frozen=True)
class Composition:
    algorithm: str
    storage: str
    actions: str
    observations: str
    num_envs: int
    memory: Any
    window: str
    normalize_observations: bool
    normalize_rewards: Any
    shared_body: bool
    extras: str
    learns: str


@st.composite
def compositions(draw: st.DrawFn, names: list[str]) -> Composition:
    name = draw(st.sampled_from(names))
    cls, _, kinds = (OFF_POLICY | ON_POLICY)[name]
    # Episodes of vectors are truncated, from which algorithms without values do not learn.
    ended = ["discrete", "dict"]
    # A line search compares outputs of the policy, which must not be random.
    compares = issubclass(cls, prl.TRPO | prl.TRPOSinglePath)
    observed = (
        ["vector"] if name in (*WITH_MODELS, "HyAR") else ["vector", *ended] if cls.sources["main"].values else ended
    )
    observations = draw(st.sampled_from(observed))
    return Composition(
        algorithm=name,
        storage=draw(st.sampled_from(list(REPLAY) if name in OFF_POLICY else _rollouts_for(name))),
        actions=draw(st.sampled_from(kinds)),
        observations=observations,
        num_envs=draw(st.sampled_from([1, 3])),
        memory=draw(st.sampled_from(MEMORIES.get(name, [None, "gru", "lstm", *OWN_MEMORIES]))),
        window=draw(st.sampled_from(list(WINDOWS))),
        normalize_observations=observations == "vector" and draw(st.booleans()),
        normalize_rewards=draw(st.sampled_from([None, "returns", "rewards"])),
        shared_body=name not in WITHOUT_SHARED_BODY and draw(st.booleans()),
        extras=draw(st.sampled_from(["plain", "dueling", "layer_norm", *([] if compares else ["noisy"])])),
        learns=draw(st.sampled_from(["as it plans", "by ratio", "with demonstrations"])),
    )


def _rollouts_for(algorithm: str) -> list[str]:
    needs = ON_POLICY[algorithm][0].sources["main"]
    if not needs.values:
        return ["VanillaOnPolicyBuffer"]
    # V-trace compares log probabilities of actions.
    wanted = {needs.log_probs and not needs.intrinsic, needs.older_policies}
    taken = [name for name, cls in ROLLOUTS.items() if cls.needs_log_probs in wanted]
    return [name for name in taken if not needs.intrinsic or IRET in ROLLOUTS[name].computed_fields]


def scheme_of(composition: Composition, folder: Path) -> prl.Scheme:
    one = composition
    space, kind = ACTIONS[one.actions], one.observations
    envs = prl.VecEnv.create_factory(_Toy, one.num_envs, env_kwargs={"kind": kind, "actions": one.actions})
    body = {"hidden_sizes": (6,), "memory": one.memory, "memory_size": 4, "shared_body": one.shared_body}
    body |= {"normalize_observations": one.normalize_observations, "feature_extractor": "mlp"}
    body |= {one.extras: True} if one.extras != "plain" else {}
    cls, settings_, _ = (OFF_POLICY | ON_POLICY)[one.algorithm]
    in_segments = cls.sources["main"].segments
    in_sequences = one.memory or in_segments or cls.sources["main"].multi_step_rows
    in_episodes = cls.sources["main"].whole_episodes
    windows: dict[str, Any] = {"sequences": WINDOWS[one.window] if in_sequences else None}
    if in_episodes:
        windows = {"sequences": prl.Episodes()}
    sources: dict[str, Any] = {}
    mixed: dict[str, prl.MixedSource] = {}
    if one.algorithm in OFF_POLICY:
        common = {"start_steps": 12, "update_every": 6, "mini_batch_size": 4, "test_every": 0}
        if cls is prl.DAgger:
            common |= {"expert": Constant(space)}
        algorithm, actor = cls.create_factory(**settings_, **common), prl.OffPolicyActor.create_factory(**body)
        storage_class, given_ = REPLAY[one.storage]
        if (in_segments or in_episodes or cls.sources["main"].single_steps) and "n_step" in given_:
            windows |= {"n_step": 1}
        storage = storage_class.create_factory(size=40, **(given_ | windows))
        if not cls.sources["main"].collected:
            data = prl.from_dataset(storage, expert_data(folder, kind, space))
            return prl.Scheme(algorithm, actor, data, test_envs_factory=envs, seed=3)
        if one.learns == "with demonstrations" and not in_segments:
            sources = {"demonstrations": prl.from_dataset(storage, expert_data(folder, kind, space))}
            mixed = {"main": prl.MixedSource({"demonstrations": 0.25, "main": 0.75})}
        if one.learns == "by ratio" and not in_segments:
            limit = prl.RateLimit(samples_per_insert=1.5, min_size=12)
            storage = storage_class.create_factory(size=40, rate_limit=limit, **(given_ | windows))
    else:
        algorithm = cls.create_factory(**settings_, test_every=0)
        actor = prl.OnPolicyActor.create_factory(**body)
        # REINFORCE learns before a rollout is full; PPO divides one among its batches.
        length = {"sequence_length": 4} if one.memory and one.algorithm != "REINFORCE" else {}
        dropped = {} if cls.sources["main"].values else {"cut_episodes": "drop"}
        storage = ROLLOUTS[one.storage].create_factory(size=8, **length, **dropped)
        if "expert" in cls.sources:
            expert = prl.ReplayBuffer.create_factory(size=40, **windows)
            sources = {"expert": prl.from_dataset(expert, expert_data(folder, kind, space))}
        if cls is prl.PPOD:
            shown = prl.ReplayBuffer.create_factory(size=40, **windows)
            demonstrations = prl.from_dataset(shown, expert_data(folder, kind, space))
            sources = {"demonstrations": demonstrations, "repeated": storage}
    return prl.Scheme(
        algorithm,
        actor,
        storage,
        envs,
        sources=sources,
        mixed=mixed,
        normalize_rewards=one.normalize_rewards,
        seed=3,
    )


class _Toy(Counter):
    def __init__(self, kind: str, actions: str) -> None:
        super().__init__(
            kind, length=5, end="truncated" if kind == "vector" else "terminated", actions=ACTIONS[actions]
        )


def run(
    composition: Composition,
    folder: Path,
    name: str,
    interrupted: bool,
    callbacks: Callable[[], list[prl.Callback]] = list,
) -> Any:
    scheme = scheme_of(composition, folder)
    learner = prl.Learner(scheme, target_steps=STEPS, log_dir=folder / name, log_every=20, callbacks=callbacks())
    if interrupted:
        learner._interruption.is_requested = lambda: learner.scheme.steps >= INTERRUPTED_AT  # type: ignore[method-assign]
        assert not learner.run()
        learner.close()
        scheme = scheme_of(composition, folder)
        learner = prl.Learner.resume(folder / name, scheme=scheme, callbacks=callbacks())
    assert learner.run()
    state = learner.scheme.state_dict()
    learner.close()
    return state


def check(composition: Composition, callbacks: Callable[[], list[prl.Callback]] = list) -> None:
    with tempfile.TemporaryDirectory() as folder:
        whole = run(composition, Path(folder), "whole", interrupted=False, callbacks=callbacks)
        resumed = run(composition, Path(folder), "resumed", interrupted=True, callbacks=callbacks)
        assert_equal(whole, resumed)
        assert whole["algorithm"]["training"]["counters"]["updates"] > 0
        weights = [value for value in whole["algorithm"]["actor"].values() if value.is_floating_point()]
        assert all(torch.isfinite(weight).all() for weight in weights)


SETTINGS = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True}


@pytest.mark.quick_share(0.12)
@pytest.mark.parametrize("name", [*OFF_POLICY, *ON_POLICY][::3])
def test_a_random_composition_resumes_bit_for_bit(name: str) -> None:
    @settings(max_examples=1, **SETTINGS)
    @given(compositions([name]))
    def each(composition: Composition) -> None:
        check(composition)

    each()


@pytest.mark.quick_share(0, long=0.5)
@pytest.mark.long
@pytest.mark.parametrize("name", [*OFF_POLICY, *ON_POLICY])
def test_many_random_compositions_resume_bit_for_bit(name: str) -> None:
    @settings(max_examples=by_profile(2, 8, 80), **SETTINGS)
    @given(compositions([name]))
    def each(composition: Composition) -> None:
        check(composition)

    each()


@dataclass(eq=False)
class CheckedReset(prl.ResetNetworks):
    """Checks, after each reset, that what is trained is as if it never had been, and all else as before."""

    def on_step_begin(self, learner: prl.Learner) -> None:
        scheme, resets, before = learner.scheme, self._resets, _untrained(learner.scheme)
        super().on_step_begin(learner)
        if self._resets > resets:
            assert_equal(_trained(scheme.algorithm), _trained(scheme.make_algorithm(scheme.algorithm.updates)))
            assert_equal(_untrained(scheme), before)


def _trained(algorithm: prl.Algorithm) -> Any:
    state = algorithm.state_dict()
    kept = ("count", "mean", "squares", "shift", "scale", "largest_return", "has_learnt")
    training = {kind: state["training"][kind] for kind in ("targets", "variables", "optimizers")}
    for optimizer in training["optimizers"].values():
        del optimizer["learning_rate"]
    networks = {"actor": state["actor"], **training["targets"]}
    parts = {
        name: {key: value for key, value in part.items() if key.rpartition(".")[2] not in kept}
        for name, part in networks.items()
    }
    return parts | {kind: training[kind] for kind in ("variables", "optimizers")}


def _untrained(scheme: prl.Scheme) -> Any:
    state = scheme.state_dict()
    algorithm = {key: value for key, value in state["algorithm"].items() if key not in ("actor", "training")}
    counters = dict(state["algorithm"]["training"]["counters"])
    moments = scheme.actor.normalization.moments if scheme.actor.normalization else None
    return saved_and_loaded([algorithm, counters, moments, state["storage"], state["collector"]])


@pytest.mark.quick_share(0.06, long=0.3)
@pytest.mark.parametrize("name", [*OFF_POLICY, *ON_POLICY])
def test_after_a_reset_networks_are_as_if_never_trained_and_the_run_resumes(name: str) -> None:
    @settings(max_examples=1, **SETTINGS)
    @given(compositions([name]))
    def each(composition: Composition) -> None:
        resets = [CheckedReset(every=2) for _ in range(3)]
        one_each = iter(resets)
        check(composition, lambda: [next(one_each)])
        assert min(callback.state_dict()["resets"] for callback in resets) > 0

    each()

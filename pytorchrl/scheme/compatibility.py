"""Checks that the parts of a scheme are compatible."""

import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gymnasium import spaces

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.stacked_memory import described_memory
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.envs.copies.making import name_of_wrapper
from pytorchrl.agent.envs.spaces import have_other_bounds
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.agent.envs.wrappers.observation_wrappers import ObserveActionMask
from pytorchrl.scheme.wrong_calls import way_out
from storages.component.factory import Component, Factory
from storages.off_policy.her_buffer import HERBuffer
from storages.off_policy.mixed_storage import MixedSource
from storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer
from storages.storage import Storage
from storages.transition import IRET


class CompositionError(ValueError):
    """Raised when the parts of a scheme are incompatible."""


def check_parts(
    algorithm: Factory[Algorithm],
    actor: Factory[Actor],
    sources: Mapping[str, Factory[Storage]],
    mixed: Mapping[str, MixedSource],
    train_envs: Factory[VecEnv] | None,
    test_envs: Factory[VecEnv] | None,
    normalize_rewards: str | None,
) -> None:
    """Check what is known of the parts of a scheme before they are made.

    Raises:
        CompositionError: the message names the parts and a way out.
    """
    check_roles(algorithm, actor, sources, train_envs, test_envs)
    check_composition(algorithm, actor, sources, mixed, collects=train_envs is not None)
    check_rewards(algorithm, sources["main"], train_envs, normalize_rewards)


def check_roles(
    algorithm: Any, actor: Any, sources: Mapping[str, Any], train_envs: Any | None, test_envs: Any | None
) -> None:
    """Check that each argument was made by `create_factory` of the right kind of class.

    Raises:
        CompositionError: the message names the argument.
    """
    roles: list[tuple[str, Any, type[Component]]]
    roles = [("algo_factory", algorithm, Algorithm), ("actor_factory", actor, Actor)]
    for name, source in sources.items():
        roles.append(("storage_factory" if name == "main" else f"sources[{name!r}]", source, Storage))
    roles += [(f"{name}_envs_factory", e, VecEnv) for name, e in (("train", train_envs), ("test", test_envs)) if e]
    for name, factory, role in roles:
        if not isinstance(factory, Factory) or not issubclass(factory.cls, role):
            # All hyper-parameters of a factory are several lines.
            got = f"{factory.name}.create_factory(...)" if isinstance(factory, Factory) else repr(factory)
            raise CompositionError(
                f"Scheme: {name} must be made by create_factory of a subclass of {role.__name__}, got {got}"
                f"{way_out(factory, role, algorithm)}"
            )


def check_composition(
    algorithm: Factory[Algorithm],
    actor: Factory[Actor],
    sources: Mapping[str, Factory[Storage]],
    mixed: Mapping[str, MixedSource] = MappingProxyType({}),
    *,
    collects: bool,
) -> None:
    """Check that the algorithm can learn from its sources.

    Raises:
        CompositionError: the message names the parts and a way out.
    """
    needs = algorithm.cls.sources
    _check_names(algorithm.name, needs, sources, mixed)
    for name, source in sources.items():
        if source.hyper_parameters.get("rate_limit") is not None and not (collects and name == "main"):
            raise CompositionError(
                f"Scheme: {source.name}: nothing is inserted into the source {name!r} during training, so that its "
                f"rate_limit would stop the updates; leave it out"
            )
    for name, need in needs.items():
        if name not in sources and name not in mixed:
            if need.optional:
                continue
            raise CompositionError(
                f"Scheme: {algorithm.name} needs a source {name!r}; give it sources={{{name!r}: ...}}, such as "
                f"from_dataset(ReplayBuffer.create_factory(size=...), path)"
            )
        reason = None
        if name in mixed and (need.kind == "rollout" or need.segments):
            kind = "a rollout of its policy" if need.kind == "rollout" else "the newest steps of one storage"
            reason = f"{algorithm.name} learns from {kind}, which cannot be mixed with other sources"
        for read in storages_read(name, mixed):
            reason = reason or _mismatch(need, algorithm.name, actor, sources[read])
            reason = reason or _mismatch_of_components(algorithm, sources[read])
        if reason is None and not collects and (need.kind == "rollout" or need.segments):
            reason = f"{algorithm.name} learns from steps of its own policy; give the scheme train_envs_factory"
        if reason is None and collects and name == "main" and not need.collected:
            reason = (
                f"{algorithm.name} learns from a data set, into which no collected steps may be inserted; leave out "
                f"train_envs_factory, and give the scheme test_envs_factory to evaluate the policy"
            )
        if reason is not None:
            raise CompositionError(f"Scheme: {reason}")


def check_rewards(
    algorithm: Factory[Algorithm],
    storage: Factory[Storage],
    train_envs: Factory[VecEnv] | None,
    normalize_rewards: str | None,
) -> None:
    """Check that the rewards in the main storage can be normalised.

    Raises:
        CompositionError: nothing is collected, a wrapper normalises the rewards already, hindsight computes rewards
            that would not be normalised, or the algorithm learns from components of rewards, which are not.
    """
    if normalize_rewards is None:
        return
    if train_envs is None:
        raise CompositionError(
            "Scheme: normalize_rewards normalises the rewards that are collected, and there is no train_envs_factory; "
            "leave it out"
        )
    if "NormalizeReward" in map(name_of_wrapper, train_envs.hyper_parameters.get("wrappers", ())):
        raise CompositionError(
            f"Scheme: rewards would be normalised twice, by the wrapper NormalizeReward and by "
            f"normalize_rewards={normalize_rewards!r}; leave out one of them"
        )
    if _components_of(algorithm):
        raise CompositionError(
            f"Scheme: {algorithm.name} learns from reward_components, which normalize_rewards does not normalise; "
            f"leave it out, or scale them by component_weights"
        )
    if issubclass(storage.cls, HERBuffer):
        raise CompositionError(
            f"Scheme: {storage.name} computes the rewards of other goals, which normalize_rewards does not normalise; "
            f"leave it out, or scale the rewards in the environment's compute_reward"
        )


def warn_of_unused_mask(actor: Factory[Actor], train_envs: Factory[VecEnv] | None) -> None:
    """Warn where environments show which actions are allowed, and the actor takes the mask for a mere observation."""
    wrappers = () if train_envs is None else train_envs.hyper_parameters.get("wrappers", ())
    if ObserveActionMask.__name__ in map(name_of_wrapper, wrappers) and not actor.hyper_parameters.get("action_mask"):
        warnings.warn(
            'Scheme: the wrapper ObserveActionMask adds the part "action_mask" to observations, which restricts no '
            'action until the actor has action_mask="action_mask"',
            stacklevel=4,  # that of the decorated constructor
        )


def check_test_spaces(
    actor: Actor, envs: VecEnv, *, owner: str = "Scheme", given: str = "the environments of test_envs_factory"
) -> None:
    """Check that test environments have the observations and actions of the training environments.

    Bounds of observations may differ; those of actions are what the policy's outputs are scaled or clipped to.

    Args:
        actor: has the spaces of training.
        envs: the test environments.
        owner: of the argument, for the message.
        given: names the test environments in the message.

    Raises:
        CompositionError: their shapes, dtypes or numbers differ, or the bounds of actions; the environments are closed.
    """
    pairs = (
        ("observation", actor.observation_space, envs.observation_space),
        ("action", actor.action_space, envs.action_space),
    )
    for name, trained, tested in pairs:
        if _layout(trained) != _layout(tested) or (name == "action" and have_other_bounds(trained, tested)):
            envs.close()
            raise CompositionError(
                f"{owner}: the policy has the {name} space {trained}, but {given} have {tested}; give it environments "
                f"of the same spaces"
            )


def _layout(space: Any) -> Any:
    """Return what a policy depends on in a space: all but the bounds of a Box."""
    if isinstance(space, spaces.Dict):
        return {name: _layout(part) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Box):
        return space.shape, space.dtype.kind
    return space


def check_batches(algorithm: Algorithm, storage: Storage) -> None:
    """Check that a full rollout divides into the algorithm's minibatches.

    Raises:
        CompositionError: it has fewer rows.
    """
    if not isinstance(storage, VanillaOnPolicyBuffer) or not storage.num_envs:
        return
    recurrent = algorithm.actor.memory is not None
    most = storage.most_batches(storage.size, recurrent)
    for name in ("num_mini_batch", "value_mini_batches"):
        number = getattr(algorithm, name, 1)
        if number > most:
            row, way_out = ("sequence", "a smaller sequence_length") if recurrent else ("transition", "a larger size")
            raise CompositionError(
                f"Scheme: {type(algorithm).__name__} has {name}={number}, but a rollout of {type(storage).__name__} "
                f"with num_envs={storage.num_envs} has only {most} {row}{'s' * (most != 1)}; choose {name}={most} or "
                f"less, more environments, or {way_out} of the storage"
            )


def storages_read(name: str, mixed: Mapping[str, MixedSource]) -> list[str]:
    """Return the names of the storages that a source's batches are drawn from."""
    return list(mixed[name].shares) if name in mixed else [name]


def _check_names(
    algorithm: str,
    needs: Mapping[str, Needs],
    sources: Mapping[str, Factory[Storage]],
    mixed: Mapping[str, MixedSource],
) -> None:
    """Check that all sources exist and are used."""
    known = f"it learns from {', '.join(map(repr, needs))}"
    for name, mix in mixed.items():
        if not isinstance(mix, MixedSource):
            raise CompositionError(f"Scheme: mixed[{name!r}] must be a MixedSource, got {mix!r}")
        if name not in needs:
            raise CompositionError(f"Scheme: {algorithm} knows no source {name!r} that could be mixed; {known}")
        for read in mix.shares:
            if read not in sources:
                raise CompositionError(
                    f"Scheme: {mix} draws from a source {read!r}, but the sources are {', '.join(map(repr, sources))}; "
                    f"give the scheme sources={{{read!r}: ...}}"
                )
    learnt = {read for name in needs for read in storages_read(name, mixed)}
    for name in sources:
        if name not in learnt and name in needs:
            raise CompositionError(f"Scheme: the source {name!r} is not used; give it a share in {mixed[name]}")
        if name not in learnt:
            raise CompositionError(f"Scheme: {algorithm} knows no source {name!r}; {known}")


def _mismatch(needs: Needs, algorithm: str, actor: Factory[Any], storage: Factory[Storage]) -> str | None:
    """Return why a storage cannot be a source for an algorithm, and which could; None where it can."""
    if needs.kind == "rollout" and not storage.cls.on_policy:
        return (
            f"{algorithm} learns on-policy, but {storage.name} replays steps of older policies; GAEBuffer and "
            f"VanillaOnPolicyBuffer hold rollouts"
        )
    if needs.kind == "rollout":
        return _mismatch_of_rollouts(needs, algorithm, storage)
    memory, sequences = (f.hyper_parameters.get(n) for f, n in ((actor, "memory"), (storage, "sequences")))
    if storage.cls.on_policy:
        return (
            f"{algorithm} learns from replayed transitions, but {storage.name} holds one rollout of the current "
            f"policy; ReplayBuffer keeps them"
        )
    if needs.next_actions and not storage.cls.knows_next_actions:
        return (
            f"{algorithm} learns from next actions, which batches of {storage.name} lack; ReplayBuffer and its "
            f"subclasses provide them"
        )
    if needs.single_steps and (n_step := storage.hyper_parameters.get("n_step", 1)) != 1:
        return f"{algorithm} learns from one-step transitions, but {storage.name} has n_step={n_step}; give it n_step=1"
    if needs.returns_to_go and not storage.cls.knows_returns_to_go:
        return (
            f"{algorithm} learns from returns-to-go, which batches of {storage.name} lack; ReplayBuffer and its "
            f"subclasses provide them"
        )
    if needs.segments and (reason := _mismatch_of_segments(algorithm, storage, sequences)):
        return reason
    if needs.whole_episodes and (reason := _mismatch_of_whole_episodes(algorithm, storage, sequences)):
        return reason
    if needs.multi_step_rows and sequences is None:
        return _need_of_sequences(algorithm, storage)
    if memory is not None and sequences is None:
        return (
            f"{actor.name} has a memory ({described_memory(memory)}), which learns from sequences, but {storage.name} "
            f"makes batches of single transitions; give it sequences=Sequences(length=...) or sequences=Episodes()"
        )
    takes_sequences = needs.sequences or needs.segments or needs.whole_episodes or needs.multi_step_rows
    if memory is None and sequences is not None and not takes_sequences:
        return (
            f"{storage.name} makes batches of {sequences}, but {actor.name} has no memory to learn from them; give it "
            f'memory="gru", or the storage sequences=None'
        )
    return None


def _mismatch_of_rollouts(needs: Needs, algorithm: str, storage: Factory[Storage]) -> str | None:
    """As :func:`_mismatch`, for a storage that holds rollouts."""
    if storage.cls.needs_log_probs and not needs.log_probs:
        return (
            f"{storage.name} needs log-probabilities for its importance ratios, but {algorithm} has no stochastic "
            f"policy; GAEBuffer and VanillaOnPolicyBuffer need none"
        )
    if storage.cls.needs_action_values and not needs.action_values:
        return (
            f"{storage.name} computes targets from action values, which the actor of {algorithm} does not estimate; "
            f"LambdaReturnBuffer and VTraceBuffer need none"
        )
    length = storage.hyper_parameters.get("sequence_length")
    if needs.partial and length is not None:
        return (
            f"{algorithm} learns from partial rollouts, which do not divide into sequences of {length} steps; give "
            f"{storage.name} sequence_length=None"
        )
    if not needs.values and storage.hyper_parameters.get("cut_episodes") != "drop":
        return (
            f"{algorithm} has no value function, from which {storage.name} bootstraps the returns of incomplete "
            f"episodes; give it VanillaOnPolicyBuffer.create_factory(size=..., cut_episodes='drop')"
        )
    if needs.older_policies and not storage.cls.needs_log_probs:
        return (
            f"{algorithm} also learns off-policy, from rollouts of older policies, for which {storage.name} does not "
            f"correct; VTraceBuffer does"
        )
    if needs.intrinsic and IRET not in storage.cls.computed_fields:
        return (
            f"{algorithm} gives intrinsic rewards, for which {storage.name} computes no returns; GAEBuffer and "
            f"VanillaOnPolicyBuffer do"
        )
    return None


def _mismatch_of_segments(algorithm: str, storage: Factory[Storage], sequences: Any) -> str | None:
    """As :func:`_mismatch`, for an algorithm that needs the newest steps and replayed sequences."""
    if not storage.cls.knows_newest_steps:
        return (
            f"{algorithm} learns from the newest steps in addition to replayed ones, and {storage.name} does not "
            f"provide them; ReplayBuffer and its subclasses do"
        )
    if storage.hyper_parameters.get("rate_limit") is not None:
        return f"{algorithm} sets its replay ratio itself; leave out the rate_limit of {storage.name}"
    if sequences is None:
        return _need_of_sequences(algorithm, storage)
    return _mismatch_of_sums(algorithm, storage)


def _need_of_sequences(algorithm: str, storage: Factory[Storage]) -> str:
    return (
        f"{algorithm} learns from sequences, but {storage.name} makes batches of single transitions; give it "
        f"sequences=Sequences(length=...) or sequences=Episodes()"
    )


def _mismatch_of_whole_episodes(algorithm: str, storage: Factory[Storage], sequences: Any) -> str | None:
    """As :func:`_mismatch`, for an algorithm that needs whole episodes."""
    if sequences is None or not sequences.is_of_whole_episodes:
        made = "single transitions" if sequences is None else str(sequences)
        return (
            f"{algorithm} learns from whole episodes, padded, but {storage.name} makes batches of {made}; give it "
            f"sequences=Episodes()"
        )
    return _mismatch_of_sums(algorithm, storage)


def _mismatch_of_components(algorithm: Factory[Algorithm], storage: Factory[Storage]) -> str | None:
    """As :func:`_mismatch`, for an algorithm that learns from components of rewards."""
    if _components_of(algorithm) and issubclass(storage.cls, HERBuffer):
        return (
            f"{algorithm.name} learns from reward_components, but {storage.name} recomputes rewards for other goals, "
            f"and no function gives their components; use a buffer without hindsight, such as PERBuffer, or "
            f"reward_components=None"
        )
    return None


def _components_of(algorithm: Factory[Algorithm]) -> Any:
    """Return the components of rewards that an algorithm learns from; a class may fix them."""
    return algorithm.hyper_parameters.get("reward_components", algorithm.cls.reward_components)


def _mismatch_of_sums(algorithm: str, storage: Factory[Storage]) -> str | None:
    """As :func:`_mismatch`, for an algorithm that needs single-step rewards."""
    if (n_step := storage.hyper_parameters.get("n_step", 1)) != 1:
        return f"{algorithm} sums rewards itself, but {storage.name} has n_step={n_step}; give it n_step=1"
    return None

"""What to write instead of calls of schemes whose arguments are no factories, or those of other parts."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.refusals import algorithm_named, factory_code
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.agent.other_names.calls import environment_of, id_of_environment
from storages.component.factory import Component, Factory, factory_call


def answer_call(cls: type[Any], wrong: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return the message about a call of a scheme without its factories: what to write instead."""
    named = next((one for one in args if isinstance(one, str) and algorithm_named(one)), "PPO")
    env = environment_of(args, kwargs) or "CartPole-v1"
    return f'{wrong}; prl.compose("{named}", "{env}") makes a scheme of an algorithm and an environment'


def way_out(given: Any, role: type[Component], algorithm: Any) -> str:
    """Return what to write instead of an argument of a scheme, as the end of a message.

    Args:
        given: the argument, which is no factory, or one of another part.
        role: the base class of the parts that the argument's factory makes.
        algorithm: the scheme's argument ``algo_factory``.
    """
    cls = given if isinstance(given, type) else type(given)
    if isinstance(given, Factory):
        return f", which is one for {given.cls.role or 'another part'}; write {_example(role, algorithm, None)}"
    if not issubclass(cls, role):
        return f"; write {_example(role, algorithm, given)}"
    package = "prl." if cls.__module__.startswith(("pytorchrl.", "storages.")) else ""
    return f"; write {package}{factory_call(cls)}{'' if given is cls else ', the factory, which the scheme calls'}"


def _example(role: type[Component], algorithm: Any, given: Any) -> str:
    """Return the code of a factory for an argument of a scheme."""
    rollouts = isinstance(algorithm, Factory) and _learns_from_rollouts(algorithm.cls)
    if role is VecEnv:
        return _factory_of_environments(given)
    if role is Algorithm:
        named = algorithm_named(given) if isinstance(given, str) else None
        return factory_code(named) if named else "prl.PPO.create_factory(gamma=0.99)"
    if role is Actor:
        actor = "prl.OnPolicyActor" if rollouts else "prl.OffPolicyActor"
        own = "; modules of your own are its feature_extractor" if isinstance(given, nn.Module) else ""
        return f"{actor}.create_factory(hidden_sizes=(256, 256)){own}"
    return f"prl.{'GAEBuffer.create_factory(size=128)' if rollouts else 'ReplayBuffer.create_factory(size=100_000)'}"


def _learns_from_rollouts(algorithm: Any) -> bool:
    needs = getattr(algorithm, "sources", {}).get("main")
    return needs is not None and needs.kind == "rollout"


def _factory_of_environments(given: Any) -> str:
    """Return the code of a factory of environments, in place of one environment, several, or what makes them."""
    env = id_of_environment(given)
    count = len(given) if isinstance(given, list | tuple) else getattr(given, "num_envs", 1)
    makes = "make_env" if callable(given) or isinstance(given, list | tuple) else "'CartPole-v1'"
    return f"prl.VecEnv.create_factory({makes if env is None else repr(env)}, num_envs={count})"

"""Calls as in other libraries raise errors that say what to write here, and what they say can be written."""

import ast
import inspect
import pickle
import pydoc
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import pytest
import torch

import pytorchrl as prl
from docs.generated_parts import exported
from pytorchrl.agent import other_names
from pytorchrl.agent.other_names import arguments, of_objects
from pytorchrl.experiments.policies.trained_policy import TrainedPolicy
from storages.component.declared import hyper_parameters_of
from storages.component.factory import Component, factory_call
from storages.component.other_names import OtherNames, hint_for
from storages.other_names import STORAGE_ATTRIBUTES

ENV = gym.make("CartPole-v1")
FACTORIES = {
    "algo": prl.PPO.create_factory(test_every=0),
    "actor": prl.OnPolicyActor.create_factory(hidden_sizes=(4,)),
    "storage": prl.GAEBuffer.create_factory(size=16),
    "envs": prl.VecEnv.create_factory("CartPole-v1"),
}
CLASSES: Mapping[str, type[Any]] = {
    "learner": prl.Learner,
    "scheme": prl.Scheme,
    "policy": prl.TrainedPolicy,
    "storage": prl.PERBuffer,
    "envs": prl.VecEnv,
    "agent": prl.Agent,
    "algorithm": prl.PPO,
    "actor": prl.OnPolicyActor,
}
"""Names of variables in messages, and their classes."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """What a newcomer has at hand."""
    scheme = prl.Scheme(*FACTORIES.values())
    with prl.Learner(scheme, 16, tmp_path_factory.mktemp("runs") / "run") as learner:
        yield SimpleNamespace(
            scheme=scheme,
            learner=learner,
            algorithm=scheme.algorithm,
            actor=scheme.actor,
            storage=scheme.storage,
            envs=scheme.envs,
            policy=prl.TrainedPolicy(scheme.algorithm),
            vector_env=gym.make_vec("CartPole-v1", num_envs=2),
            folder=str(tmp_path_factory.mktemp("more")),
            **{f"{name}_factory": factory for name, factory in FACTORIES.items()},
        )


TRAIN = 'prl.Learner(prl.compose("{}", "{}"), target_steps=100_000, log_dir="runs/{}").run()'
RUN = 'prl.Learner(scheme, target_steps=100_000, log_dir="runs/mine").run()'
PPO = TRAIN.format("PPO", "CartPole-v1", "ppo")
SAC = TRAIN.format("SAC", "Pendulum-v1", "sac")
ACT = "policy = prl.load_policy(log_dir)"
ENVIRONMENTS = 'prl.VecEnv.create_factory("CartPole-v1", num_envs=8)'
MISTAKES: dict[str, tuple[str, ...]] = {
    # Of classes, as in stable-baselines3 and RLlib.
    "prl.PPO.load('ppo.zip')": ("'PPO'", "'load'", "prl.load_policy(log_dir)"),
    "prl.PPO.learn(total_timesteps=1_000)": ("'PPO'", "'learn'", "prl.Learner(prl.compose("),
    "prl.PPO.save('ppo')": ("'PPO'", "'save'", "learner.run()"),
    "prl.PPO.from_checkpoint('run')": ("'from_checkpoint'", "prl.Learner.resume(log_dir)"),
    "prl.SAC.predict": ("'SAC'", "'predict'", ACT),
    "prl.SAC()": ("SAC is not called", SAC),
    "prl.PPO()": ("PPO is not called", PPO),
    "prl.PPO(gym.make('Acrobot-v1'))": ("PPO is not called", TRAIN.format("PPO", "Acrobot-v1", "ppo")),
    "prl.SAC(ENV)": ("SAC is not called", SAC, "SAC needs a Box action space"),
    "prl.PPO('MlpPolicy', ENV, learning_rate=3e-4)": (PPO, "prl.compose(prl.PPO.create_factory(gamma=0.99),"),
    "prl.PPO('CartPole-v1').learn(10)": ("PPO is not called", PPO),
    "prl.PPO.create_factory('MlpPolicy', ENV)": ('prl.compose(prl.PPO.create_factory(gamma=0.99), "CartPole-v1")',),
    "prl.PPO.create_factory(env=ENV)": ("here it is env of VecEnv",),
    "prl.PPO.create_factory(optimizer=torch.optim.Adam)": ("prl.Adam()", 'prl.TorchOptimizer("Adagrad")'),
    "prl.Adam(lr=1e-3)": ("prl.PPO.create_factory(lr=1e-3, optimizer=prl.Adam())",),
    "made.algo_factory(ENV)": ("PPO is not called", PPO),
    "made.algo_factory.learn(1_000)": ("'learn'", "prl.Learner(prl.compose("),
    "made.algo_factory.gamma": ("'gamma'", "factory.hyper_parameters['gamma']"),
    "prl.SAC.create_factory(update_every=(1, 'episode'))": ("(1, 'episode')", "update_plan", "prl.EveryEpisodes(1)"),
    "prl.SAC.create_factory(update_every=prl.EveryEpisodes(1))": ("update_plan returns prl.EveryEpisodes(1)",),
    "prl.SAC.create_factory(num_mini_batch=-1)": ("got -1", "num_mini_batch equals update_every"),
    "prl.SAC.create_factory(train_freq=(1, 'episode'))": ("update_plan of a subclass counts episodes",),
    # Learners.
    "prl.Learner()": ("Learner", "'scheme'", PPO),
    "prl.Learner(total_timesteps=1_000)": ("'total_timesteps'", "target_steps"),
    "prl.Learner(made.scheme, total_timesteps=1_000, log_dir='run')": ("'total_timesteps'", "target_steps"),
    "prl.Learner(made.scheme, 10, 'run', verbose=1)": ("'verbose'", "learner.run(progress=False)"),
    "prl.Learner(made.scheme, 10, 'run', eval_freq=5)": ("'eval_freq'", "test_every of the algorithm"),
    "prl.Learner(made.scheme, 10, 'run', callback=[])": ("'callback'", "callbacks"),
    "prl.Learner(made.scheme, 10, 'run', callbacks=[lambda a, b: True])": ("callbacks[0]", "one argument, the learner"),
    "made.learner.device": ("learner.scheme.device",),
    "made.learner.action_space": ("learner.scheme.envs",),
    "prl.compose('PPO', 'CartPole-v1', learning_rate=lambda left: left)": ('{"name": "PPO", "lr": ...}',),
    "prl.Learner(made.scheme, 10, 'run', seed=0)": ("'seed'", "seed of prl.Scheme"),
    "prl.Learner(made.scheme)": ("'target_steps'", RUN),
    "prl.Learner(made.scheme, target_steps=10)": ("'log_dir'", RUN),
    "prl.Learner(ENV)": ("Learner", PPO),
    "prl.Learner(gym.make('Acrobot-v1'), 10, 'run')": ("Scheme", TRAIN.format("PPO", "Acrobot-v1", "ppo")),
    "prl.Learner(made.algorithm)": ("Learner", PPO),
    "prl.Learner(prl.SAC.create_factory())": ("Learner", SAC),
    "prl.Learner(prl.SAC, 10, 'run')": ("Scheme", SAC),
    "prl.Learner('SAC', 'Pendulum-v1')": ("Learner", SAC),
    "prl.Learner('DQN', made.envs_factory)": ("Learner", TRAIN.format("DQN", "CartPole-v1", "dqn")),
    "prl.Learner.load('run')": ("'load'", "prl.Learner.resume(log_dir)"),
    "made.learner.learn(1_000)": ("'learn'", "learner.run()"),
    "made.learner.train()": ("'train'", "learner.run()"),
    "made.learner.fit()": ("'fit'", "learner.run()"),
    "made.learner.save('run')": ("'save'", "learner.save_policy(path)"),
    "made.learner.predict(0)": ("'predict'", ACT),
    "made.learner.env": ("'env'", "learner.scheme.envs"),
    "made.learner.run(total_timesteps=10)": ("Learner.run", "'total_timesteps'", "target_steps of prl.Learner"),
    "made.learner.run(callback=None)": ("Learner.run", "'callback'", "callbacks of prl.Learner"),
    "made.learner.run(100)": ("Learner.run", "target_steps of prl.Learner", "run(checkpoint_every=100)"),
    "made.learner.evaluate(n_eval_episodes=3)": ("Learner.evaluate", "'n_eval_episodes'", "here it is episodes"),
    "made.learner.evaluate(ENV, 3)": ("learner.evaluate(episodes=10)", "prl.load_policy(log_dir).evaluate(env,"),
    "made.learner.log('loss', 1.0)": ("learner.log({'loss': 1.0})",),
    "made.learner.record('loss', 1.0)": ("'record'", 'learner.log({"mine/number": 1.0})'),
    "made.learner.logger.record": ("'logger'", 'learner.log({"mine/number": 1.0})'),
    "made.learner.num_timesteps": ("learner.scheme.steps",),
    "made.learner.get_parameters()": ("learner.scheme.algorithm.get_weights()",),
    "made.learner.set_parameters({})": ("learner.scheme.algorithm.set_weights(weights)", "prl.start_from(scheme,"),
    "made.learner.save_replay_buffer('b.pkl')": ("learner.save_checkpoint()", "prl.Learner.resume(log_dir)"),
    "made.learner.get_vec_normalize_env()": ("normalize_observations=True", "normalize_rewards of prl.Scheme"),
    # Callbacks.
    "prl.StopAtReturn(reward_threshold=200)": ("StopAtReturn: unknown argument", "here it is mean_return"),
    "prl.StopAfter(max_episodes=200)": ("StopAfter: unknown argument", "here it is episodes"),
    "prl.RecordVideos(video_folder='videos')": ("RecordVideos: unknown argument", "a folder of the run folder"),
    "prl.EvaluateIn(made.envs_factory, 'more', evry=9)": ("EvaluateIn: unknown argument", "did you mean 'every'?"),
    "Verbose(0)": ("super().__init__() of a callback takes no arguments, such as verbose", "@dataclass"),
    # Schemes.
    "made.scheme.num_timesteps": ("scheme.steps",),
    "prl.Scheme(*FACTORIES.values(), norm_obs=True)": ("normalize_observations=True of the actor",),
    "prl.Scheme(*FACTORIES.values(), norm_reward=True)": ('normalize_rewards="returns"',),
    "made.scheme.learn(1_000)": ("'learn'", RUN),
    "made.scheme.train()": ("'train'", RUN),
    "made.scheme.run()": ("'run'", RUN),
    "made.scheme.predict(0)": ("'predict'", ACT),
    "prl.Scheme.load('run')": ("'load'", "prl.Learner.resume(log_dir)"),
    "prl.Scheme()": ("Scheme", 'prl.compose("PPO", "CartPole-v1")'),
    "prl.Scheme('SAC', 'Pendulum-v1')": ("Scheme", 'prl.compose("SAC", "Pendulum-v1")'),
    "scheme_of(made, envs='CartPole-v1')": ("'CartPole-v1'", "prl.VecEnv.create_factory('CartPole-v1', num_envs=1)"),
    "scheme_of(made, envs=ENV)": ("<CartPole-v1>", "prl.VecEnv.create_factory('CartPole-v1', num_envs=1)"),
    "scheme_of(made, envs=made.vector_env)": ("prl.VecEnv.create_factory('CartPole-v1', num_envs=2)",),
    "scheme_of(made, envs=lambda: ENV)": ("<lambda>", "prl.VecEnv.create_factory(make_env, num_envs=1)"),
    "scheme_of(made, envs=[lambda: ENV] * 4)": ("prl.VecEnv.create_factory(make_env, num_envs=4)",),
    "scheme_of(made, envs=prl.VecEnv)": ("VecEnv", ENVIRONMENTS),
    "scheme_of(made, envs=made.envs)": ("VecEnv", ENVIRONMENTS),
    "scheme_of(made, algo='SAC')": ("'SAC'", "prl.SAC.create_factory(gamma=0.99)"),
    "scheme_of(made, algo=prl.PPO)": ("PPO", "prl.PPO.create_factory()"),
    "scheme_of(made, algo=made.storage_factory)": ("GAEBuffer", "storage_factory", "prl.PPO.create_factory("),
    "scheme_of(made, actor='MlpPolicy')": ("'MlpPolicy'", "prl.OnPolicyActor.create_factory(hidden_sizes="),
    "scheme_of(made, actor=torch.nn.Linear(4, 2))": ("Linear", "prl.OnPolicyActor", "feature_extractor"),
    "scheme_of(made, storage=100)": ("100", "prl.GAEBuffer.create_factory(size=128)"),
    "scheme_of(made, algo=prl.SAC.create_factory(), storage=None)": ("prl.ReplayBuffer.create_factory(size=100_000)",),
    "prl.Scheme(*FACTORIES.values(), env=ENV)": ("'env'", "train_envs_factory=prl.VecEnv.create_factory("),
    "prl.Scheme(*FACTORIES.values(), total_timesteps=9)": ("'total_timesteps'", "target_steps of prl.Learner"),
    "prl.Scheme(*FACTORIES.values(), num_workers=9)": ("'num_workers'", "num_collectors of prl.RayScheme"),
    "prl.compose('PPO', 'CartPole-v1', n_envs=4)": ("n_envs", "here it is num_envs"),
    "prl.compose('PPO', 'CartPole-v1', total_timesteps=4)": ("total_timesteps", "target_steps of prl.Learner"),
    "prl.compose('PPO', 'CartPole-v1', lr=1e-3)": ('prl.compose({"name": "PPO", "lr": 0.001}, "CartPole-v1")',),
    "prl.compose('SAC', 'Pendulum-v1', hidden_sizes=(8,))": ('actor={"hidden_sizes": (8,)}',),
    "prl.compose('SAC', 'Pendulum-v1', net_arch=[8])": ('"Pendulum-v1", actor={"hidden_sizes": ...})',),
    "prl.compose('PPO', 'MlpPolicy', ENV)": ("'MlpPolicy'", 'prl.compose("PPO", "CartPole-v1", actor={"hidden_sizes"'),
    "prl.compose('PPO', 'CartPole-v1', policy='MlpPolicy')": ('actor={"hidden_sizes": (64, 64)}',),
    "prl.compose('PPO', 'CartPole-v1', n_steps=128)": ("size of the storage", ', storage={"size": ...})'),
    "prl.compose('PPO', 'CartPole-v1', net_arch=[8])": ('"CartPole-v1", actor={"hidden_sizes": ...})',),
    "prl.compose('PPO', 'CartPole-v1', clip_range=0.2)": ('prl.compose({"name": "PPO", "clip_param": 0.2}, "CartP',),
    "prl.compose('SAC', 'Pendulum-v1', tau=0.005)": ("polyak, which is 1 - tau", '{"name": "SAC", "polyak": ...}'),
    "prl.compose('SAC', 'Pendulum-v1', ent_coef='auto')": ("initial_alpha", '{"name": "SAC", "initial_alpha": ...}'),
    "prl.compose('DQN', 'CartPole-v1', replay_buffer_class='HER')": ('storage="PER", "HER" or another',),
    "prl.compose('DQN', 'CartPole-v1', storage_factory=FACTORIES)": ("storage_factory", 'storage="PER", "HER"'),
    "prl.OffPolicyActor.create_factory(features_extractor_kwargs={})": ("functools.partial(MyExtractor, width=64)",),
    "prl.OffPolicyActor.create_factory(optimizer_class='Adam')": ("optimizer of the algorithm", "prl.Adam(eps=1e-5)"),
    "prl.OffPolicyActor.create_factory(net_arch=dict(pi=[8], qf=[8]))": ('per_network={"policy": {"hidden_sizes"',),
    "prl.PPO.create_factory(vf_coef=0.5)": ("value_loss_coef, twice vf_coef of stable-baselines3",),
    "prl.compose('PPO', ENV)": ("an instance", "'CartPole-v1'"),
    # Policies.
    "made.policy.predict(np.zeros(4))": ("'predict'", "action = policy(observation)"),
    "made.policy.act(np.zeros(4))": ("'act'", "action = policy(observation)"),
    "made.policy.save('run')": ("'save'", "learner.save_policy(path)"),
    "made.policy.learn(10)": ("'learn'", "prl.Learner.resume(log_dir, target_steps=200_000).run()"),
    "made.policy(ENV.reset())": ("a pair", "observation, info = env.reset()"),
    "prl.TrainedPolicy.load('run')": ("'load'", "prl.load_policy(path)"),
    "prl.TrainedPolicy('run')": ("prl.load_policy('run')",),
    # Storages.
    "made.storage.add(0, 0, 0, 0, False, {})": ("'add'", "storage.insert_transition(sample)"),
    "made.storage.push(0)": ("'push'", "storage.insert_transition(sample)"),
    "made.storage.sample(32)": ("'sample'", "storage.generate_batches(num_mini_batch, mini_batch_size)"),
    "made.storage.compute_returns_and_advantage(0, 0)": ("storage.before_gradients()",),
    "made.storage.save('run')": ("'save'", "storage.state_dict()"),
    "made.storage_factory.add(0)": ("'add'", "storage.insert_transition(sample)"),
    "prl.ReplayBuffer.add": ("'ReplayBuffer'", "'add'", "storage.insert_transition(sample)"),
    "prl.ReplayBuffer.load('run')": ("'ReplayBuffer'", "'load'", "storage.load_state_dict(state)"),
    "prl.ReplayBuffer()": ("ReplayBuffer", "storage_factory=ReplayBuffer.create_factory(size=100_000)"),
    "prl.ReplayBuffer(10_000, ENV.observation_space)": ("storage_factory=ReplayBuffer.create_factory(size=100_000)",),
    "prl.ReplayBuffer(buffer_size=10_000)": ("'buffer_size'", "here it is size"),
    "prl.ReplayBuffer.create_factory(10_000, ENV, ENV)": ("ReplayBuffer.create_factory(size=100_000)",),
    # Actors.
    "prl.OnPolicyActor.load('run')": ("'OnPolicyActor'", "'load'", "prl.load_policy(log_dir)"),
    "prl.OnPolicyActor()": ("actor_factory=OnPolicyActor.create_factory(hidden_sizes=",),
    "prl.OnPolicyActor(hidden_sizes=(64,))": ("actor_factory=OnPolicyActor.create_factory(hidden_sizes=",),
    "prl.OnPolicyActor.create_factory((64, 64))": ("OnPolicyActor.create_factory(hidden_sizes=",),
    "prl.OnPolicyActor.create_factory(observation_space=ENV)": ("the environments have the spaces",),
    "made.actor.predict(np.zeros(4))": ("'predict'", ACT),
    # Environments.
    "prl.make_vec_env('CartPole-v1', n_envs=4)": ("'make_vec_env'", "prl.VecEnv.create_factory(env, num_envs=8)"),
    "prl.make('CartPole-v1')": ("'make'", ENVIRONMENTS),
    "prl.VecEnv.make('CartPole-v1')": ("'make'", ENVIRONMENTS),
    "prl.VecEnv()": ("VecEnv", f"train_envs_factory={ENVIRONMENTS.removeprefix('prl.')}"),
    "prl.VecEnv(ENV)": ("an instance", "'CartPole-v1'"),
    "prl.VecEnv('CartPole-v1', n_envs=4)": ("'n_envs'", "here it is num_envs"),
    "prl.VecEnv.create_factory(ENV)": ("an instance", "'CartPole-v1'"),
    "prl.VecEnv.create_factory('CartPole-v1', seed=0)": ("'seed'", "seed of Scheme"),
    "made.envs.single_action_space": ("'single_action_space'", "envs.action_space"),
    "made.envs_factory.reset()": ("'reset'", "factory()"),
    "made.envs_factory.observation_space": ("'observation_space'", 'prl.VecEnv("CartPole-v1", num_envs=8)'),
    # The package.
    "prl.evaluate_policy(made.policy, ENV)": ("learner.evaluate(episodes=10)", ".evaluate(episodes=10) of a"),
    "prl.CheckpointCallback": ("keep_checkpoints of prl.Learner", "prl.SavePolicies(every=10_000)"),
    "prl.load('run')": ("'load'", "prl.load_policy(log_dir)"),
    "prl.train()": ("'train'", "prl.Learner("),
    "prl.set_seed(0)": ("'set_seed'", 'prl.compose("PPO", "CartPole-v1", seed=0)'),
}
"""Mistakes as code, and what the error says."""


class Verbose(prl.Callback):
    """As in stable-baselines3."""

    def __init__(self, verbose: int) -> None:
        super().__init__(verbose)


def scheme_of(made: SimpleNamespace, **others: Any) -> prl.Scheme:
    """A scheme of the parts that are at hand, and others in the place of some."""
    return prl.Scheme(*{**FACTORIES, **others}.values())


@pytest.mark.parametrize("code", MISTAKES)
def test_a_mistake_is_answered_with_what_to_write(code: str, made: SimpleNamespace) -> None:
    with pytest.raises((AttributeError, TypeError, ValueError)) as refused:
        eval(code, globals() | {"made": made})
    text = str(refused.value)
    assert [part for part in MISTAKES[code] if part not in text] == []
    assert "\n" not in text
    assert list(unknown_in(text)) == []


CODE = re.compile(rf"(?<![\w.])(?:prl|{'|'.join(CLASSES)})(?:\.\w+)+|(?<![\w.])[A-Z]\w+\.create_factory")


def unknown_in(text: str) -> Iterator[str]:
    """Names, arguments and methods in the code of a message that there are not."""
    for found in CODE.finditer(text):
        first, *others = found[0].split(".")
        if first != "prl" and first not in CLASSES:
            first, others = "prl", [first, *others]
        value: Any = prl if first == "prl" else CLASSES[first]
        for name in others:
            if not has(value, name):
                yield found[0]
                break
            value = getattr(value, name, None) or CLASSES.get(name, value)
        else:
            unknown = keywords_at(text[found.end() :]) - parameters_of(value)
            yield from (f"{found[0]}({name}=)" for name in sorted(unknown))


def has(value: Any, name: str) -> bool:
    """Whether it has the attribute, or objects of the class get it in their ``__init__``."""
    if hasattr(value, name) or not isinstance(value, type):
        return hasattr(value, name)
    if name in (hyper_parameters_of(value) if issubclass(value, Component) else ()):
        return True
    ours = (each for each in value.__mro__ if each.__module__.startswith(("pytorchrl", "storages")))
    return any(re.search(rf"self\.{name}\b.*=", inspect.getsource(each)) for each in ours)


def keywords_at(text: str) -> set[str]:
    """Names of the keyword arguments of a call, of the text that follows what is called."""
    for end in range(len(text)):
        if text.startswith("(") and text[end] == ")":
            try:
                call = ast.parse(f"called{text[: end + 1]}", mode="eval").body
            except SyntaxError:
                continue
            return {one.arg for one in call.keywords if one.arg} if isinstance(call, ast.Call) else set()
    return set()


def parameters_of(value: Any) -> set[str]:
    """Names that a call may give, those of a scheme too where it passes arguments on."""
    if not callable(value):
        return set()
    parameters = inspect.signature(value).parameters
    passes_on = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    return {*parameters, *(inspect.signature(prl.Scheme).parameters if passes_on else ())}


def test_the_check_of_messages_finds_what_does_not_exist() -> None:
    text = 'prl.Leaner(scheme); learner.rum(); prl.compose("PPO", num_env=3); prl.VecEnv.create_factory(nums=(1, 2))'
    unknown = ["prl.Leaner", "learner.rum", "prl.compose(num_env=)", "prl.VecEnv.create_factory(nums=)"]
    assert list(unknown_in(text)) == unknown
    assert list(unknown_in("scheme.envs, storage.inserted and learner.run(progress=False)")) == []


TABLES: Mapping[str, Mapping[str, str]] = {
    name: table for name, table in vars(of_objects).items() if name.isupper() and not name.startswith("_")
} | {"STORAGE_ATTRIBUTES": STORAGE_ATTRIBUTES}


@pytest.mark.parametrize("table", TABLES)
def test_every_answer_names_what_exists(table: str) -> None:
    unknown = {name: list(unknown_in(text)) for name, text in TABLES[table].items()}
    assert {name: found for name, found in unknown.items() if found} == {}


PLACES: Mapping[str, Callable[..., Any]] = {
    "prl.Learner": prl.Learner,
    "learner.run": prl.Learner.run,
    "prl.Scheme": prl.Scheme,
    "Scheme": prl.Scheme,
    "prl.RayScheme": prl.RayScheme,
    "prl.VecEnv.create_factory": prl.VecEnv.create_factory,
    "prl.load_policy": prl.load_policy,
    "policy": TrainedPolicy.__call__,
    "policy.evaluate": TrainedPolicy.evaluate,
    "the algorithm": prl.SAC.create_factory,
    "the storage": prl.ReplayBuffer.create_factory,
    "the actor": prl.OffPolicyActor.create_factory,
}


@pytest.mark.parametrize(
    ("names", "method"),
    [
        (arguments.LEARNER_NAMES, "prl.Learner"),
        (arguments.LEARNER_NAMES, "learner.run"),
        (arguments.SCHEME_NAMES, "prl.Scheme"),
        (arguments.ENVIRONMENT_NAMES, "prl.VecEnv.create_factory"),
        (arguments.LOADING_NAMES, "prl.load_policy"),
        (arguments.POLICY_NAMES, "policy"),
        (arguments.POLICY_NAMES, "policy.evaluate"),
    ],
)
def test_an_argument_of_another_library_is_answered_with_one_that_exists(names: OtherNames, method: str) -> None:
    declared = inspect.signature(PLACES[method]).parameters
    for name in names.keys() - declared.keys():
        text = hint_for(name, declared, names)
        assert list(unknown_in(text)) == []
        here = re.match(r"here it is (\w+)(?:=.*)? of (the \w+|[\w.]+\w)", text)
        if here is not None:
            assert here[1] in inspect.signature(PLACES[here[2]]).parameters, text
        elif alone := re.match(r"here it is (\w+)(?:=|,|\. $)", text):
            assert alone[1] in declared, text


OBJECTS = ("learner", "scheme", "policy", "algorithm", "actor", "storage", "envs")


@pytest.mark.parametrize("name", OBJECTS)
def test_what_is_answered_is_no_attribute_of_object_or_class(name: str, made: SimpleNamespace) -> None:
    owner = getattr(made, name)
    # Names that algorithms have, and environments that were made, while factories are asked for them.
    others = set(type(owner).other_methods) - {"build", "train", "training", "observation_space", "action_space"}
    assert others
    for one in others:
        assert not hasattr(owner, one)
        assert not hasattr(type(owner), one)
        with pytest.raises(AttributeError, match=f"no attribute '{one}': "):
            getattr(type(owner), one)


def test_an_unknown_attribute_of_a_class_has_the_nearest_name(made: SimpleNamespace) -> None:
    name = "unheard_of"
    for owner in (prl.PPO, made.scheme, made.policy, made.learner, made.envs):
        with pytest.raises(AttributeError) as refused:
            getattr(owner, name)
        assert str(refused.value).endswith("has no attribute 'unheard_of'")
        assert (refused.value.obj, refused.value.name) == (owner, name)


def test_an_error_in_a_descriptor_of_a_class_stays_itself() -> None:
    class Failing:
        def __get__(self, instance: object, owner: type[Any]) -> Any:
            raise AttributeError("the database is down")

    class Own(prl.DQN):
        sample = Failing()
        load = Failing()

    for name in ("sample", "load"):
        with pytest.raises(AttributeError, match="the database is down"):
            getattr(Own, name)


@pytest.mark.parametrize("cls", [prl.TrainedPolicy, prl.Learner, prl.PPO, prl.PERBuffer])
def test_help_lists_the_methods_of_a_class_as_its_own(cls: type[Any]) -> None:
    shown = pydoc.plain(pydoc.render_doc(cls))
    assert "inherited from storages.component.other_names.AnsweringMeta" not in shown
    own = next(name for name, value in vars(cls).items() if not name.startswith("_") and callable(value))
    assert own in shown.partition("defined here:")[2].partition("inherited from")[0]


def test_a_users_class_may_have_methods_of_these_names() -> None:
    class Own(prl.PPO):
        @classmethod
        def load(cls, path: str) -> str:
            return f"{cls.__name__} of {path}"

    class OwnActor(prl.OnPolicyActor):
        def predict(self, observation: Any) -> Any:
            return observation

    assert Own.load("here") == "Own of here"
    with prl.Scheme(Own.create_factory(), OwnActor.create_factory(), *list(FACTORIES.values())[2:]) as scheme:
        assert scheme.actor.predict(3) == 3  # type: ignore[attr-defined]
        assert pickle.loads(pickle.dumps(scheme.algorithm.get_weights())).keys()


def test_modules_of_an_actor_and_their_errors_are_those_of_torch(made: SimpleNamespace) -> None:
    assert isinstance(made.actor.networks, torch.nn.ModuleDict)
    name = "unheard_of"
    with pytest.raises(AttributeError, match="'OnPolicyActor' object has no attribute 'unheard_of'"):
        getattr(made.actor, name)


# A component has no role, and the expert of DAgger is the user's.
@pytest.mark.parametrize("name", sorted(exported(Component).keys() - {"Component", "DAgger"}))
def test_the_example_of_each_part_can_be_written(name: str) -> None:
    cls = getattr(prl, name)
    assert eval(f"prl.{factory_call(cls)}").cls is cls
    assert cls.role in inspect.signature(prl.Scheme).parameters


TRAINING: Mapping[str, Callable[[], object]] = {
    "a scheme without a learner": lambda: prl.compose("PPO", "CartPole-v1").learn(9),  # type: ignore[attr-defined]
    "an algorithm without parts": lambda: prl.SAC(),  # type: ignore[call-arg]
    "a class": lambda: prl.DQN.learn(9),  # type: ignore[attr-defined]
    "an environment": lambda: prl.Learner(ENV),  # type: ignore[call-arg, arg-type]
    "a package": lambda: prl.train(),
}


@pytest.mark.parametrize("mistake", TRAINING)
def test_the_training_that_an_answer_writes_can_be_started(
    mistake: str, made: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises((AttributeError, TypeError)) as refused:
        TRAINING[mistake]()
    code = re.search(r"prl\.Learner\(.*?\.run\(\)", str(refused.value))
    assert code is not None
    monkeypatch.chdir(tmp_path)
    scheme = prl.compose("PPO", "CartPole-v1")
    with scheme, eval(code[0].removesuffix(".run()"), {"prl": prl, "scheme": scheme}) as learner:
        learner.step()
        assert learner.scheme.steps > 0


def test_names_of_the_tables_are_exported() -> None:
    assert all(hasattr(other_names, name) for name in other_names.__all__)

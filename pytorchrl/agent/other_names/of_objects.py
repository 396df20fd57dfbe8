"""Attributes that objects of other libraries have, and what to write here, as code of ``import pytorchrl as prl``."""

from collections.abc import Mapping

_ACT = "policy = prl.load_policy(log_dir) is the policy of a run, and action = policy(observation) its action"
_RESTORE = "prl.Learner.resume(log_dir) continues a run, and prl.load_policy(log_dir) loads its policy"
_ENVIRONMENTS = (
    'environments are a part of the scheme: train_envs_factory=prl.VecEnv.create_factory("CartPole-v1", num_envs=8)'
)
_TRAIN = 'prl.Learner(scheme, target_steps=100_000, log_dir="runs/mine").run() trains a scheme'
_TRAIN_COMPOSED = (
    'a learner trains it: prl.Learner(prl.compose("PPO", "CartPole-v1"), target_steps=100_000, '
    'log_dir="runs/mine").run(), with the algorithm and the environment by name or by their factories'
)
_FACTORY_OF_ENVIRONMENTS = (
    'prl.VecEnv.create_factory("CartPole-v1", num_envs=8) is a factory of environments, which a scheme takes'
)
_STEPS = "learner.scheme.steps is the number of environment transitions"
_LOG = 'learner.log({"mine/number": 1.0}) logs numbers'
_KEPT = "learner.save_checkpoint() saves the storage with all else, and prl.Learner.resume(log_dir) restores it"
_NORMALISED = (
    "normalize_observations=True of the actor keeps the statistics with its weights, and normalize_rewards of "
    "prl.Scheme those of rewards in checkpoints"
)
_EVALUATE = "learner.evaluate(episodes=10) runs test episodes, policy.evaluate(episodes=10) those of a loaded policy"
_COPIES = "single copies are changed by wrappers and env_kwargs of prl.VecEnv.create_factory"


def _all(names: str, here: str) -> dict[str, str]:
    """Return the same text for several names."""
    return dict.fromkeys(names.split(), here)


LEARNER_METHODS: Mapping[str, str] = {
    **_all("learn train fit", "learner.run() trains up to target_steps, an argument of prl.Learner"),
    **_all(
        "predict compute_single_action compute_actions act get_action get_policy",
        f"learner.policy(observation) acts with the present weights; {_ACT}",
    ),
    **_all("save save_model", "learner.run() saves checkpoints in log_dir; learner.save_policy(path) saves the policy"),
    **_all("load restore from_checkpoint load_checkpoint", _RESTORE),
    **_all("test eval", "learner.evaluate(episodes=10) runs test episodes"),
    **_all("algorithm agent model", "learner.scheme.algorithm is the algorithm, learner.scheme.actor has its networks"),
    **_all("actor networks", "learner.scheme.actor has the networks"),
    **_all("storage buffer replay_buffer memory", "learner.scheme.storage is the storage"),
    **_all(
        "rollout_buffer",
        "learner.scheme.storage is the storage, which holds the rollout in on_rollout(self, learner) of a callback, "
        "before the updates",
    ),
    **_all("locals", "on_rollout(self, learner) of a prl.Callback finds the rollout in learner.scheme.storage"),
    **_all("env envs environment get_env", "learner.scheme.envs are the environments"),
    **_all("set_env", _ENVIRONMENTS),
    **_all("collect collect_rollouts", "learner.step() collects until an update is due, and makes it"),
    **_all("logger", f"{_LOG}, and learner.get_metrics() returns the latest; log_to of prl.Learner has loggers"),
    **_all("record log_metrics", _LOG),
    **_all("set_logger", "log_to of prl.Learner has loggers"),
    **_all("device", "learner.scheme.device is the device of networks and batches"),
    **_all("observation_space action_space", "learner.scheme.envs has the spaces, of one environment"),
    **_all(
        "ep_info_buffer", "on_episodes of a prl.Callback gets the episodes as they end, learner.get_metrics() means"
    ),
    **_all("num_timesteps total_timesteps global_step", _STEPS),
    **_all("get_parameters", "learner.scheme.algorithm.get_weights() returns the weights of the networks"),
    **_all(
        "set_parameters",
        "learner.scheme.algorithm.set_weights(weights) loads weights, and prl.start_from(scheme, run) those of a run",
    ),
    **_all("save_replay_buffer load_replay_buffer", _KEPT),
    **_all("get_vec_normalize_env", _NORMALISED),
    **_all("create_factory", "a learner is made at once: " + _TRAIN),
}
SCHEME_METHODS: Mapping[str, str] = {
    **_all("learn train fit run", _TRAIN),
    **_all("step train_step training_step", "learner.step() collects until an update is due, and makes it"),
    **_all("predict compute_single_action compute_actions act get_action get_policy", _ACT),
    **_all("save save_model save_checkpoint", "a learner saves checkpoints of it: learner.save_checkpoint()"),
    **_all("load restore from_checkpoint resume", _RESTORE),
    **_all("policy model agent", "scheme.algorithm is the algorithm, scheme.actor has its networks"),
    **_all("buffer replay_buffer memory rollout_buffer", "scheme.storage is the storage"),
    **_all("env environment get_env", "scheme.envs are the environments"),
    **_all("set_env", _ENVIRONMENTS),
    **_all("num_timesteps total_timesteps global_step", "scheme.steps is the number of environment transitions"),
    **_all("logger record", _LOG),
    **_all("get_parameters", "scheme.algorithm.get_weights() returns the weights of the networks"),
    **_all(
        "set_parameters",
        "scheme.algorithm.set_weights(weights) loads weights, and prl.start_from(scheme, run) those of a run",
    ),
    **_all("save_replay_buffer load_replay_buffer", _KEPT),
    **_all("get_vec_normalize_env", _NORMALISED),
    **_all(
        "create_factory build from_config",
        'a scheme is made at once: prl.compose("PPO", "CartPole-v1"), or prl.Scheme(...) of four factories',
    ),
}
POLICY_METHODS: Mapping[str, str] = {
    **_all(
        "predict act forward get_action select_action sample_action compute_action compute_single_action "
        "compute_actions choose_action batch_act",
        "action = policy(observation) is the action, policy(observation, deterministic=False) one that explores",
    ),
    **_all(
        "log_prob log_probs evaluate_actions get_distribution probabilities action_probability",
        "policy.log_probability(observation, action) is its logarithm",
    ),
    **_all("load from_checkpoint restore", "prl.load_policy(path) loads a policy"),
    **_all("save", "policies are saved by runs: learner.save_policy(path), or policy.export(path) for other programs"),
    **_all("learn train fit run", "prl.Learner.resume(log_dir, target_steps=200_000).run() trains the run further"),
    **_all("eval", "it acts as in evaluations: action = policy(observation), or policy.evaluate(episodes=10)"),
    **_all("test", "policy.evaluate(episodes=10) runs episodes, as does python -m pytorchrl evaluate"),
    **_all("to cuda cpu", 'prl.load_policy(path, device="cuda") puts the networks on a device'),
    **_all(
        "parameters state_dict policy actor network q_net", "policy.algorithm.actor has the networks, a torch module"
    ),
    **_all("get_parameters", "policy.algorithm.get_weights() returns the weights of the networks"),
    **_all("set_parameters load_state_dict", "policy.algorithm.set_weights(weights) loads weights of its networks"),
    **_all("get_vec_normalize_env obs_rms", "the statistics of normalize_observations are among the weights"),
    **_all("env envs get_env set_env", "a policy has no environment; action = policy(observation) acts in any"),
}
_ARGUMENT = "learner is the first argument of each method"
_ROLLOUT = (
    "rollout = learner.scheme.storage.get_data_slice(0, learner.scheme.storage.size) in on_rollout(self, learner), "
    "before the updates; it has the fields (steps, E, ...), such as rollout[prl.OBS2], the next observations. In "
    "on_step, after the updates, the storage of a rollout is empty"
)
_INFOS = "on_episodes gets the numbers of last infos that episode_infos of prl.VecEnv names; a wrapper sees all infos"
CALLBACK_ATTRIBUTES: Mapping[str, str] = {
    **_all("locals globals rollout_buffer", f"{_ROLLOUT}; {_INFOS}"),
    **_all("infos", _INFOS),
    **_all("logger", f"{_LOG}, where {_ARGUMENT}"),
    **_all("model algorithm trainer", f"learner.scheme.algorithm is the algorithm, where {_ARGUMENT}"),
    **_all("learner run", _ARGUMENT),
    **_all("num_timesteps n_calls total_timesteps", f"{_STEPS}, where {_ARGUMENT}"),
    **_all("training_env eval_env envs env", f"learner.scheme.envs are the environments, where {_ARGUMENT}"),
    **_all(
        "best_mean_reward last_mean_reward evaluations_results",
        'on_evaluation(self, learner, evaluation) gets evaluation.mean_return; learner.get_metrics()["test/return"]',
    ),
    **_all("is_pruned", "pruned of prl.PruneTrial says it: if callback.pruned: raise optuna.TrialPruned()"),
    **_all("verbose", "learner.run(progress=False) prints nothing"),
}
"""Of callbacks, in their methods."""
AGENT_METHODS: Mapping[str, str] = {
    **_all("learn train fit run update", "agent.observe(...) tells what came of an action, and learns"),
    **_all("predict get_action select_action choose_action batch_act", "action = agent.act(observation)"),
    **_all("batch_observe step remember store_transition", "agent.observe(...) tells what came of an action"),
    **_all("load restore", "resume=True of prl.Agent goes on with the run of its log_dir"),
}
ALGORITHM_METHODS: Mapping[str, str] = {
    **_all("learn fit build build_algo train", _TRAIN_COMPOSED),
    **_all("predict compute_single_action compute_actions get_policy get_action select_action", _ACT),
    **_all("save save_checkpoint", "learner.run() saves checkpoints in its log_dir"),
    **_all("load restore from_checkpoint", _RESTORE),
    **_all("load_state set_parameters", "algorithm.set_weights(weights) loads weights of its networks"),
    **_all("get_parameters", "algorithm.get_weights() returns the weights of its networks"),
    **_all("evaluate", "learner.evaluate(episodes=10) runs test episodes"),
    **_all("env envs environment env_runners rollouts set_env get_env", _ENVIRONMENTS),
    **_all("replay_buffer rollout_buffer memory", "scheme.storage is the storage of the scheme that has both"),
    **_all("collect_rollouts collect", "the scheme collects: learner.step() collects until an update is due"),
    **_all("training framework resources", "hyper-parameters are arguments of create_factory, device is one of Scheme"),
    **_all("networks modules models", 'algorithm.actor.networks has the networks by name, such as networks["policy"]'),
    **_all("parameters named_parameters", "algorithm.actor.named_parameters() are those of its networks"),
    **_all("groups param_groups parameter_groups", "training.groups of the algorithm has the parameter groups by name"),
}
"""Of algorithms and of their factories."""
ACTOR_METHODS: Mapping[str, str] = {
    **_all("predict act get_action select_action get_action_and_value get_distribution compute_actions", _ACT),
    **_all("get_value predict_values", "algorithms read values of their networks; prl.load_policy(log_dir) acts alone"),
    **_all("learn fit run", _TRAIN),
    **_all("save", "learner.save_policy(path) saves networks with what acting needs"),
    **_all("load from_checkpoint", _RESTORE),
}
"""Of actors and of their factories."""
VEC_ENV_METHODS: Mapping[str, str] = {
    **_all("make make_vec create vector gym_make make_env", _FACTORY_OF_ENVIRONMENTS),
    **_all("learn train run", _TRAIN),
    **_all("single_observation_space", "envs.observation_space is that of one environment"),
    **_all("single_action_space", "envs.action_space is that of one environment"),
    **_all("observation_space action_space", 'envs = prl.VecEnv("CartPole-v1", num_envs=8) has the spaces'),
    **_all("seed", "envs.reset(seed=0) seeds the environments; in a run, seed of prl.Scheme does"),
    **_all("step_async step_wait", "envs.step(actions) steps all environments"),
    **_all("render", "prl.RecordVideos(every=10_000) in callbacks of prl.Learner films test episodes"),
    **_all("envs env_method get_attr set_attr call get_env_attr set_env_attr unwrapped", _COPIES),
}
"""Of vector environments and of their factories."""
PACKAGE_NAMES: Mapping[str, str] = {
    **_all("make make_env make_vec make_vec_env_factory", _FACTORY_OF_ENVIRONMENTS),
    **_all(
        "train learn fit run",
        'prl.Learner(prl.compose("PPO", "CartPole-v1"), target_steps=100_000, log_dir="runs/mine").run() trains',
    ),
    **_all("load load_model restore", _RESTORE),
    **_all("save save_model", "learner.save_policy(path) saves the policy, learner.save_checkpoint() the whole run"),
    **_all("evaluate test", _EVALUATE),
    **_all("predict act", _ACT),
    **_all("seed set_seed seed_everything", 'seed of prl.Scheme: prl.compose("PPO", "CartPole-v1", seed=0)'),
}
"""Of the package itself: what is no name of another library, but asked for by its name elsewhere."""

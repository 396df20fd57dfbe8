"""Arguments that other libraries have where runs and environments are made, and their names here."""

from pytorchrl.agent.other_names.methods import each
from storages.component.other_names import OtherNames

_STEPS = {"target_steps": "target_steps, in environment transitions", "": "target_steps of prl.Learner"}
_FOLDER = {"log_dir": "log_dir", "": "log_dir of prl.Learner"}
_LOGGERS = {"log_to": 'log_to=("tensorboard",) or ("wandb",)', "": 'log_to=("tensorboard",) of prl.Learner'}
_CALLBACKS = {"callbacks": "callbacks, a list", "": "callbacks of prl.Learner"}
_PROGRESS = {
    "progress": "progress, where False prints nothing",
    "": "learner.run(progress=False), which prints nothing",
}
_LOG_EVERY = {"log_every": "log_every, in environment transitions", "": "log_every of prl.Learner"}
_CHECKPOINTS = {"checkpoint_every": "checkpoint_every", "": "checkpoint_every of learner.run"}
_SCHEME = {"scheme": 'scheme, such as prl.compose("PPO", "CartPole-v1")'}
_TRAINING = {
    "env": "env",
    "train_envs_factory": 'train_envs_factory=prl.VecEnv.create_factory("CartPole-v1", num_envs=8)',
    "scheme": 'scheme, such as prl.compose("PPO", "CartPole-v1")',
}
_TESTS = {
    "test_envs_factory": 'test_envs_factory=prl.VecEnv.create_factory("CartPole-v1")',
    "": "test_envs_factory of prl.Scheme",
}
_ENVIRONMENTS = {"num_envs": "num_envs", "": "num_envs of prl.VecEnv.create_factory"}
_OF_ALGORITHM = {"": 'a hyper-parameter of the algorithm, such as prl.compose({"name": "PPO", "lr": 1e-3}, env)'}
_ACTOR_CODE = "prl.OffPolicyActor.create_factory(hidden_sizes=(64, 64))"
_OF_ACTOR = {
    "actor": 'actor={"hidden_sizes": (64, 64)}',
    "actor_factory": f"actor_factory={_ACTOR_CODE}, or OnPolicyActor for rollouts",
    "": f"a hyper-parameter of the actor, such as prl.compose(..., actor={_ACTOR_CODE})",
}

_OF_PARTS: OtherNames = {
    **each("gamma learning_rate batch_size learning_starts ent_coef clip_range tau", _OF_ALGORITHM),
    **each("buffer_size", {"": "size of the storage, such as prl.ReplayBuffer.create_factory(size=100_000)"}),
    **each("n_steps", {"": "size of the storage of rollouts, such as prl.GAEBuffer.create_factory(size=128)"}),
    **each("net_arch hidden_sizes", _OF_ACTOR),
}
OF_PARTS = frozenset(_OF_PARTS)
"""Names of hyper-parameters of algorithms, storages and actors, for which their classes have better answers."""

_OF_BOTH: OtherNames = {
    **each("total_timesteps timesteps n_timesteps total_steps max_steps num_timesteps steps target_steps", _STEPS),
    **each("n_iterations num_iterations epochs max_epochs num_epochs max_epoch episodes num_episodes", _STEPS),
    **each("logdir log_folder log_path save_path save_dir output_dir checkpoint_dir run_dir outdir", _FOLDER),
    **each("tensorboard_log tb_log_name logger loggers wandb tensorboard use_wandb track", _LOGGERS),
    **each("callback callbacks hooks step_hooks", _CALLBACKS),
    **each("verbose progress_bar quiet show_progress", _PROGRESS),
    **each("log_interval log_freq log_frequency report_interval", _LOG_EVERY),
    **each("checkpoint_freq checkpoint_interval checkpoint_frequency save_freq save_interval", _CHECKPOINTS),
    **each("eval_env test_env test_envs eval_envs evaluation_env", _TESTS),
    **each("eval_freq eval_interval evaluation_interval", {"": "test_every of the algorithm, in transitions"}),
    **each(
        "n_eval_episodes eval_episodes num_eval_episodes",
        {"episodes": "episodes", "": "num_test_episodes of the algorithm"},
    ),
    **each("n_envs num_envs nenvs num_processes", _ENVIRONMENTS),
    **each("num_workers num_env_runners num_rollout_workers n_jobs", {"": "num_collectors of prl.RayScheme"}),
    **each("policy_kwargs", _OF_ACTOR),
    **each("norm_obs normalize_observations obs_norm", {"": "normalize_observations=True of the actor"}),
    **each(
        "norm_reward norm_rewards reward_norm",
        {"normalize_rewards": 'normalize_rewards="returns"', "": 'normalize_rewards="returns" of prl.Scheme'},
    ),
    **_OF_PARTS,
}
LEARNER_NAMES: OtherNames = {
    **_OF_BOTH,
    **each("env envs environment algo algorithm agent model policy trainer config", _SCHEME),
    **{name: {"": f"{name} of prl.Scheme"} for name in ("seed", "device", "normalize_rewards")},
    "checkpoint_every": _CHECKPOINTS,
    **each("reset_num_timesteps", {"": "prl.Learner.resume(log_dir, target_steps=200_000), which continues a run"}),
    **each("resume load checkpoint", {"": "prl.Learner.resume(log_dir), which continues a run"}),
}
"""Of learners and of their method ``run``."""
SCHEME_NAMES: OtherNames = {
    **_OF_BOTH,
    **each("env envs environment train_env train_envs env_factory env_id env_name train_envs_factory", _TRAINING),
    **each(
        "algo algorithm agent algo_factory",
        {"algorithm": "algorithm", "algo_factory": "algo_factory=prl.PPO.create_factory()"},
    ),
    **each(
        "actor policy model network networks actor_factory",
        {
            "actor": 'actor={"hidden_sizes": (64, 64)}',
            "actor_factory": "actor_factory=prl.OnPolicyActor.create_factory(), or prl.OffPolicyActor.create_factory()",
        },
    ),
    **each(
        "storage buffer replay_buffer memory replay_buffer_class storage_factory",
        {
            "storage": 'storage="PER", "HER" or another',
            "storage_factory": "storage_factory=prl.ReplayBuffer.create_factory(size=100_000)",
        },
    ),
    **each(
        "rollout_buffer rollout_buffer_class",
        {
            "storage": 'storage="GAE" or another',
            "storage_factory": "storage_factory=prl.GAEBuffer.create_factory(size=128)",
        },
    ),
    **each("random_seed", {"seed": "seed"}),
    **each("log_dir", _FOLDER),
    **each("log_to", _LOGGERS),
}
"""Of schemes and of ``compose``."""
ENVIRONMENT_NAMES: OtherNames = {
    **each("n_envs nenvs n_env num_env num_processes training_num", {"num_envs": "num_envs"}),
    **each("env_id env_name id name env_fn env_fns task task_id", {"env": "env"}),
    **each("seed", {"": "seed of Scheme"}),
    **each("vec_env_cls vectorization asynchronous context", {"mode": 'mode="async", for copies in processes'}),
    **each("vec_env_kwargs", {"mode": "mode"}),
    **each("wrapper wrapper_class env_wrappers", {"wrappers": "wrappers, a list"}),
    **each("make_kwargs kwargs env_config", {"env_kwargs": "env_kwargs"}),
    **each("frame_stack n_stack stack_num", {"wrappers": 'wrappers=[("FrameStackObservation", {"stack_size": 4})]'}),
    **each("max_episode_steps", {"env_kwargs": 'env_kwargs={"max_episode_steps": 500}'}),
    **each("render_mode", {"env_kwargs": 'env_kwargs={"render_mode": "rgb_array"}'}),
    **each("monitor_dir", {"": "no setting: learners log the returns of all episodes"}),
    **each("info_keywords monitor_kwargs", {"episode_infos": 'episode_infos=("distance",), beside the usual ones'}),
    **each("norm_obs normalize_observations", {"": "normalize_observations=True of the actor"}),
    **each(
        "normalize normalize_rewards norm_reward normalize_reward",
        {"wrappers": 'wrappers=["NormalizeReward"]; the actor has normalize_observations'},
    ),
    **each("autoreset_mode", {"": "no setting: copies are reset in the step in which their episode ends"}),
}
"""Of vector environments."""
CALLBACK_NAMES: OtherNames = {
    **each("reward_threshold threshold", {"mean_return": "mean_return"}),
    **each("max_episodes n_episodes num_episodes", {"episodes": "episodes"}),
    **each("eval_env env", {"envs": 'envs=prl.VecEnv.create_factory("CartPole-v1")'}),
    **each("n_eval_episodes eval_episodes", {"episodes": "episodes"}),
    **each("eval_freq n_steps freq interval save_freq record_video_trigger", {"every": "every"}),
    **each("video_length", {"longest": "longest, in steps of an episode"}),
    **each("name_prefix", {"": "no setting: files are named after the steps"}),
    **each(
        "video_folder save_path log_path best_model_save_path",
        {"": "no setting: files are in a folder of the run folder"},
    ),
    **each("verbose", {"": "no setting: learner.run(progress=False) prints nothing"}),
}
"""Of callbacks."""

_LOADED = "no argument: a policy has no environment; policy.evaluate(env) runs episodes in one"
POLICY_NAMES: OtherNames = {
    **each(
        "state states lstm_states rnn_state recurrent_state hidden_state",
        {
            "starts": "no argument: the policy keeps its recurrent state; reset() begins new episodes, as does starts, "
            "(E,) booleans, in those environments where it is True"
        },
    ),
    **each("episode_start episode_starts dones done masks is_first", {"starts": "starts, (E,) booleans"}),
    **each(
        "action_masks action_mask avail_actions valid_actions",
        {"starts": "no argument: the mask is the part of the observation that action_mask of the actor names"},
    ),
    **each("explore sample stochastic", {"deterministic": "deterministic=False"}),
    **each("n_eval_episodes eval_episodes num_episodes n_episodes max_episodes", {"episodes": "episodes"}),
    **each("eval_env envs environment test_env", {"env": "env"}),
    **each("return_episode_rewards", {"episodes": "no argument: returns of the result has that of each episode"}),
    **each("render", {"episodes": "no argument: python -m pytorchrl play shows episodes"}),
    **each("callback warn verbose", {"episodes": "no argument"}),
}
"""Of policies, and of their method ``evaluate``."""
LOADING_NAMES: OtherNames = {
    **each("env envs eval_env environment", {"path": _LOADED}),
    **each(
        "custom_objects algorithm algo agent model policy_class",
        {"algo_factory": "algo_factory and actor_factory, with those of the training"},
    ),
    **each("policy_kwargs network actor", {"actor_factory": "actor_factory, with that of the training"}),
    **each("map_location gpu", {"device": "device"}),
    **each("file filename load_path log_dir checkpoint run", {"path": "path"}),
    **each("print_system_info force_reset", {"path": "no argument"}),
}
"""Of ``load_policy``."""

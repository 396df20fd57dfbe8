"""Names that algorithms have elsewhere and that are here settings of other parts, or no settings."""

from pytorchrl.agent.other_names.methods import each
from storages.component.other_names import OtherNames


def _all(names: str, text: str) -> OtherNames:
    return {name: {"": text} for name in names.split()}


_FACTORIES: OtherNames = {
    **_all("seed", "seed of Scheme"),
    **_all("device gpu gpu_id use_gpu cuda num_gpus num_gpus_per_learner", "device of Scheme"),
    **_all("tensorboard_log", 'log_to=("tensorboard",) of Learner'),
    **_all("logger track wandb_project_name", 'log_to=("wandb",) of Learner'),
    **_all("total_timesteps timesteps n_timesteps total_steps", "target_steps of Learner"),
    **_all("num_envs n_envs actor_num num_processes training_num num_envs_per_env_runner", "num_envs of VecEnv"),
    **_all("env_id env_name", "env of VecEnv"),
    **_all("policy_kwargs", "several hyper-parameters of the actor"),
    **_all("capture_video", "no setting: RecordVideos is a callback of Learner"),
    **_all("num_workers num_rollout_workers num_env_runners", "no setting: RayScheme has workers that collect"),
    **_all("num_learners", "no setting: RayScheme has workers that compute gradients"),
    **_all("train_async", "no setting: HogwildScheme and RayScheme update asynchronously"),
    **_all("process_idx rank", "no setting: the scheme numbers its processes"),
}
_NETWORKS: OtherNames = {
    **_all(
        "policy q_function q_func q_func1 q_func2 vf v_function model models actor critic critics critic1 critic2",
        "no setting: the actor makes the networks that an algorithm names",
    ),
    **_all("hidden_sizes fcnet_hiddens net_arch", "hidden_sizes of the actor"),
    **_all("fcnet_activation", "activation of the actor"),
    **{name: {"": f"{name} of the actor"} for name in ("activation", "dueling", "memory", "noisy", "shared_body")},
    **_all("recurrent use_lstm", "memory of the actor"),
    **_all("lstm_cell_size", "memory_size of the actor"),
    **_all(
        "encoder_factory actor_encoder_factory critic_encoder_factory value_encoder_factory imitator_encoder_factory",
        "feature_extractor and hidden_sizes of the actor",
    ),
    **_all(
        "obs_normalizer preprocess_state observation_scaler state_preprocessor observation_preprocessor",
        "normalize_observations of the actor",
    ),
    **_all("q_func_factory", "no setting: QRDQN, IQN, CategoricalDQN, QRSAC and TQC learn distributions of returns"),
}
_STORAGES: OtherNames = {
    **_all("replay_buffer replay_buffer_class replay_buffer_config", "no setting: the storage is a part of Scheme"),
    **_all("replay_buffer_kwargs", "several hyper-parameters of the storage"),
    **_all("rollout_buffer_class", "no setting: the storage is a part of Scheme"),
    **_all("rollout_buffer_kwargs", "several hyper-parameters of the storage"),
    **_all("buffer_size replay_buffer_size", "size of the storage, in steps; size * num_envs transitions fit"),
    **_all("prioritized_replay", "alpha of PERBuffer"),
    **each(
        "n_step n_step_return_horizon estimation_step reward_horizon",
        {
            "mini_batch_size": "n_step of NStepReplayBuffer",
            "": "no setting: returns reach to the end of a rollout",
        },
    ),
    **each(
        "gae_lambda lambd lambda_",
        {
            "mini_batch_size": "no setting: n_step of the storage sets the length of returns",
            "": "gae_lambda of GAEBuffer",
        },
    ),
    **_all("use_gae", "no setting: GAEBuffer computes these advantages, VanillaOnPolicyBuffer others"),
    **_all("use_average_reward average_reward_tau", "no setting: AverageRewardBuffer learns from average rewards"),
    **_all("optimize_memory_usage", "no setting: each observation is kept once"),
    **each(
        "max_recurrent_sequence_len max_seq_len",
        {
            "mini_batch_size": "sequences of the storage, such as Sequences(20)",
            "": "sequence_length of GAEBuffer",
        },
    ),
    **_all("episodic_update episodic_update_len", "sequences of the storage, such as Sequences(20)"),
    **_all(
        "rollouts num_steps_per_iteration actor_timesteps rollout_fragment_length step_per_collect update_steps",
        "size of the storage, in steps; size * num_envs transitions make a rollout",
    ),
}
_ENVIRONMENTS: OtherNames = {
    **_all(
        "reward_scaler rewards_shaper reward_normalization return_scaling value_preprocessor",
        "normalize_rewards of Scheme",
    ),
    **_all("action_scaling action_bound_method action_scaler", "no setting: actions are scaled to the bounds of a Box"),
    **_all(
        "timelimit_as_terminal time_limit_bootstrap handle_timeout_termination",
        "no setting: states at time limits keep their value, which is that of the storage's final observation",
    ),
    **_all("test_num", "no setting: test_envs_factory of Scheme has the test environments"),
}
_NONE: OtherNames = {
    **_all(
        "act_deterministically act_deterministic_in_eval deterministic_eval use_mean_for_eval test_epsilon",
        "no setting: evaluations are greedy; EvaluateIn(explore=True) evaluates with exploration",
    ),
    **_all("batch_states", "no setting: the actor reads batches of observations"),
    **_all(
        "average_q_decay average_loss_decay average_entropy_decay value_stats_window stats_window_size",
        "no setting: what is logged is the mean since the last record; log_every of Learner sets the interval",
    ),
    **_all("backward_separately keep_loss_scale_same", "no setting: a batch has one backward pass"),
    **_all(
        "normalize_grad_by_t_max normalize_loss_by_steps", "no setting: a loss is the mean over the steps of a rollout"
    ),
    **_all("use_Q_opc", "no setting: the policy's gradient takes the returns of Retrace"),
    **_all("backprop_future_values", "no setting"),
    **_all("pi_loss_coef", "no setting: the policy's loss has the weight 1"),
    **_all("pi_batch_size policy_update_frequency", "no setting: the policy makes one update with the whole rollout"),
    **_all("verbose torch_deterministic exp_name framework", "no setting"),
    **_all("compile_graph", "compile"),
}
OF_OTHER_PARTS: OtherNames = {**_FACTORIES, **_NETWORKS, **_STORAGES, **_ENVIRONMENTS, **_NONE}
"""Names that are no hyper-parameters of any algorithm, with the part that they belong to."""

"""Hyper-parameters of other libraries, and their names here."""

from pytorchrl.agent.other_names.methods import OF_METHODS, each
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
    **_all("env_id env_name env environment", "env of VecEnv"),
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
        "reward_scaler rewards_shaper reward_normalization return_scaling value_preprocessor normalize_rewards "
        "normalize_reward norm_reward",
        "normalize_rewards of Scheme",
    ),
    **_all("normalize", "normalize_observations of the actor, and for rewards Scheme(normalize_rewards=...)"),
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
    **_all("verbose", "no setting: Learner.run(progress=False) prints nothing"),
    **_all("torch_deterministic exp_name framework", "no setting"),
    **_all("compile_graph", "compile"),
}
OF_OTHER_PARTS: OtherNames = {**_FACTORIES, **_NETWORKS, **_STORAGES, **_ENVIRONMENTS, **_NONE}
"""Names that are no hyper-parameters of any algorithm, with the part that they belong to."""


_BATCH = {
    "mini_batch_size": "mini_batch_size",
    "episodes_per_update": "episodes_per_update",
    "num_mini_batch": "num_mini_batch, the transitions of a rollout divided by the batch size",
    "": "size of the storage, the steps of a rollout",
}
_UPDATES = {
    "replay_ratio": "replay_ratio, on average",
    "mini_batch_size": "num_mini_batch, which equals update_every for as many updates as transitions",
    "": "no setting: a rollout makes one update",
}
_EPOCHS = {"num_epochs": "num_epochs"}
_CLIP = {"clip_param": "clip_param"}
_VALUE_CLIP = {"value_clip_param": "use_clipped_value_loss=True, with value_clip_param"}
_ROLLOUT = {"": "size of the storage, the steps of a rollout"}
_RETURNS = {"start_steps": "n_step of the storage"} | _ROLLOUT
_EXPLORATION = {
    "epsilon": "epsilon, which may be a LinearSchedule(initial, final, fraction)",
    "explorer": "explorer, such as EpsilonGreedy(0.1)",
    "": "no setting: actions are drawn from the policy",
}
_START = {
    "start_steps": "start_steps, in environment transitions",
    "": "no setting: learning begins with the first rollout",
}
_PERIOD = {
    "update_every": "update_every, in environment transitions; update_plan of a subclass counts episodes",
} | _ROLLOUT
_OPTIMIZERS = {"optimizers": "optimizers, by parameter group; rates are lr_pi, lr_q and the like"}
_OPTIMIZER = {"": "optimizer, such as Adam(eps=1e-5) or RMSprop()"}
_EPSILON_OF_ADAM = {"": "optimizer=Adam(eps=...)"}
_POLICY_RATE = {"lr_pi": "lr_pi", "lr": "lr"}
_CRITIC_RATE = {"lr_q": "lr_q", "lr_value": "lr_value", "lr": "lr"}
_RATES = {"lr_q": "lr_pi and lr_q", "lr_value": "lr_value, of the value function"}
_ADVANTAGES = {
    "normalize_advantages": "normalize_advantages",
    "": "no setting: advantages are not normalised",
}
_OF_VALUES = {"value_epochs": "value_epochs"}
_ALPHA_RATE = {"lr_alpha": "lr_alpha", "": "no setting: there is no temperature that is learnt"}
_FOLLOWING = {
    "polyak": "polyak, which is 1 - tau",
    "value_loss_coef": "gae_lambda of GAEBuffer",
    "": "no setting: there are no target networks",
}
_INTERVAL = {
    "target_update_interval": "target_update_interval, in updates",
    "target_update_interval_steps": "target_update_interval_steps, in transitions",
    "polyak": "no setting: target networks follow after each update; polyak says how fast",
    "": "no setting: there are no target networks",
}
_METHOD = {"polyak": "polyak, 0 for hard updates", "": "no setting: there are no target networks"}
_NOISE = {
    "exploration_noise": "exploration_noise, or explorer, for actions scaled to [-1, 1]",
    "explorer": "explorer, such as GaussianNoise(0.1) or OrnsteinUhlenbeck(0.3, dt=1.0), for actions in [-1, 1]",
    "": "no setting: actions are drawn from the policy",
}
_SMOOTHING = {"target_noise": "target_noise, for actions scaled to [-1, 1]"}
_SMOOTHING_CLIP = {"target_noise_clip": "target_noise_clip, for actions scaled to [-1, 1]"}
_NORM = {
    "max_grad_norm": "max_grad_norm, of the norm of a group's gradients",
}
_ENTROPY = {
    "entropy_coef": "entropy_coef",
    "initial_alpha": "initial_alpha, fixed where learn_alpha is False",
    "tau": "tau",
    "": "no setting: there is no entropy bonus",
}
_ALPHA = {"initial_alpha": "initial_alpha"}
_LAMBDA = {
    "minimum_weight": "minimum_weight",
    "mini_batch_size": "no setting: n_step of the storage sets the length of returns",
    "": "gae_lambda of GAEBuffer",
}
_CRITICS = {"num_critics": "num_critics", "": "no setting: there is one critic"}
_ACTIONS = {"num_target_actions": "num_target_actions", "num_samples": "num_samples", "": "no setting"}
_KL_CONSTRAINT = {"max_kl": "max_kl"}
_VALUE_COEF = {"value_loss_coef": "value_loss_coef", "": "no setting: the loss of values has no weight"}
_LEARNT = {"learn_alpha": "learn_alpha"}
_DECAYED = {"lr": "lr, which may be a LinearSchedule(initial, 0)", "": "no setting: rates may be schedules"}
_CONJUGATE = {"cg_iterations": "cg_iterations"}

ALGORITHM_NAMES: OtherNames = {
    **OF_OTHER_PARTS,
    "discount_factor": {"gamma": "gamma"},
    "discount": {"gamma": "gamma"},
    **OF_METHODS,
    **each("learning_rate", {"lr": "lr"} | _RATES),
    **each("lr", _RATES),
    **each("actor_lr policy_lr actor_learning_rate", _POLICY_RATE),
    **each("critic_lr q_lr critic_learning_rate", _CRITIC_RATE),
    **each("alpha_lr temp_learning_rate temperature_optimizer_lr entropy_learning_rate", _ALPHA_RATE),
    **each("anneal_lr learning_rate_scheduler lr_scheduler lr_schedule", _DECAYED),
    **each("tau", _FOLLOWING),
    **each("soft_update_tau", _FOLLOWING),
    **each("target_update_method", _METHOD),
    **each(
        "target_update_interval target_update_frequency target_update_freq target_network_frequency "
        "target_network_update_freq i_target",
        _INTERVAL,
    ),
    **each("batch_size minibatch_size sgd_minibatch_size batchsize train_batch_size", _BATCH),
    **each("n_times_update gradient_steps update_per_step", _UPDATES),
    **each("n_epochs noptepochs update_epochs epochs num_sgd_iter learning_epochs repeat_per_collect", _EPOCHS),
    **each("clip_range clip_coef clip_ratio clip_eps eps_clip ratio_clip", _CLIP),
    **each("clip_range_vf clip_eps_vf value_clip vf_clip_param clip_predicted_values clip_vloss", _VALUE_CLIP),
    **each("ent_coef entropy_coeff entropy_coefficient entropy_loss_scale", _ENTROPY),
    **each("entropy_coef", _ENTROPY),
    **each(
        "vf_coef",
        _VALUE_COEF
        | {
            "value_loss_coef": "value_loss_coef, twice vf_coef of stable-baselines3 and Tianshou, whose error is not "
            "halved; CleanRL's has the same value here"
        },
    ),
    **each(
        "v_loss_coef value_coefficient value_func_coef vf_loss_coeff value_loss_scale Q_loss_coef value_loss_coef",
        _VALUE_COEF,
    ),
    **each("max_grad_norm grad_clip gradient_clip clip_grad_norm grad_norm_clip", _NORM),
    **each("normalize_advantage norm_adv advantage_normalization standardize_advantages", _ADVANTAGES),
    **each("n_critics num_q_ensembles", _CRITICS),
    **each("target_policy_noise policy_noise target_smoothing_sigma train_action_noise_sigma", _SMOOTHING),
    **each("smooth_regularization_noise", _SMOOTHING),
    **each("noise_clip target_smoothing_clip train_action_noise_abs smooth_regularization_clip", _SMOOTHING_CLIP),
    **each("action_noise exploration_noise_sigma", _NOISE),
    **each("exploration_noise", _NOISE),
    **each("initial_temperature initial_entropy_value", _ALPHA),
    **each("autotune learn_entropy auto_alpha", _LEARNT),
    **each(
        "alpha", _ALPHA | {"inverse_temperature": "inverse_temperature", "conservative_weight": "conservative_weight"}
    ),
    **each("actor_beta actor_bc_coef alpha_actor", {"policy_penalty": "policy_penalty"}),
    **each("critic_beta critic_bc_coef alpha_critic", {"critic_penalty": "critic_penalty"}),
    **each("normalize_q", {"normalize_q_loss": "normalize_q_loss"}),
    **each("q_agg", {"value_of_targets": "value_of_targets"}),
    **each("target_kl kl_threshold", _KL_CONSTRAINT | {"target_kl": "target_kl"}),
    **each("sigma_kl_divergence_constraint", _KL_CONSTRAINT),
    **each("cg_max_steps conjugate_gradient_max_iter conjugate_gradient_iterations", _CONJUGATE),
    **each("n_critic_updates vf_epochs", _OF_VALUES),
    **each("t_max", {"replay_ratio": "update_every, in transitions of all environments"} | _ROLLOUT),
    **each("adam_epsilon adam_eps", _EPSILON_OF_ADAM),
    **each("optimizer_class optimizer_kwargs optim optim_factory use_rms_prop rms_prop_eps", _OPTIMIZER),
    **each(
        "actor_optimizer critic_optimizer policy_optimizer q_func_optimizer q_func1_optimizer q_func2_optimizer "
        "vf_optimizer temperature_optimizer actor_optim_factory critic_optim_factory temp_optim_factory",
        _OPTIMIZERS,
    ),
    **each("learning_starts warmup_steps replay_start_size start_timesteps", _START),
    **each("num_steps_sampled_before_learning_starts", _START),
    **each("train_freq train_frequency update_interval learner_update_frequency environment_steps", _PERIOD),
    **each(
        "exploration_fraction exploration_initial_eps exploration_final_eps initial_epsilon final_epsilon "
        "max_explore_steps start_e end_e",
        _EXPLORATION,
    ),
    **each("n_steps num_steps", _RETURNS),
    **each("lmb lam lambda", _LAMBDA),
    **each(
        "batch_accumulator", {"loss_reduction": "loss_reduction", "": "no setting: a loss is the mean over a batch"}
    ),
    **each(
        "disable_online_update",
        {"online_update": "online_update=False", "": "no setting: an update phase begins with the newest steps"},
    ),
    **each(
        "gpu_batch_size",
        {"fisher_mini_batch_size": "fisher_mini_batch_size", "": "no setting: a batch has one backward pass"},
    ),
    **each("num_action_samples n_action_samples", _ACTIONS),
}


_SPACES = {"": "no setting: the environments have the spaces"}
_UNITS = {"hidden_sizes": "hidden_sizes"}
_LAYERS = {
    "per_network": 'hidden_sizes; for a dict of networks per_network={"policy": {"hidden_sizes": (64, 64)}, ...}',
}
_EXTRACTOR = {"feature_extractor": "feature_extractor"}
_MEMORY = {"memory": 'memory, "gru" or "lstm"'}
_MEMORY_SIZE = {"memory_size": "memory_size"}
_MEMORY_LAYERS = {"memory_layers": "memory_layers"}

ACTOR_NAMES: OtherNames = {
    "seed": {"": "seed of Scheme"},
    "device": {"": "device of Scheme"},
    "learning_rate": {"": "lr of the algorithm"},
    "policy_kwargs": {"": "several hyper-parameters of the actor"},
    "net_arch": _LAYERS,
    "hidden_size": _UNITS,
    "hidden_dim": _UNITS,
    "hidden_units": _UNITS,
    "fcnet_hiddens": _UNITS,
    "layer_sizes": _UNITS,
    "n_hidden_channels": _UNITS,
    "n_hidden_layers": _UNITS,
    "num_layers": {"": "hidden_sizes of the actor"},
    "lstm_hidden_size": _MEMORY_SIZE,
    "lstm_cell_size": _MEMORY_SIZE,
    "rnn_hidden_size": _MEMORY_SIZE,
    "rnn_hidden_dim": _MEMORY_SIZE,
    "n_lstm_layers": _MEMORY_LAYERS,
    "rnn_num_layers": _MEMORY_LAYERS,
    "rnn_type": _MEMORY,
    "recurrent_net": _MEMORY,
    "use_lstm": _MEMORY,
    "recurrent": _MEMORY,
    "activation_fn": {"activation": "activation"},
    "fcnet_activation": {"activation": "activation"},
    "nonlinearity": {"activation": "activation"},
    "ortho_init": {"initialisation": 'initialisation, "orthogonal"'},
    "log_std_init": {"initial_log_std": "initial_log_std"},
    "use_sde": {"": "no setting: distribution=heads.GSDEPolicy() of the algorithm"},
    "features_extractor_class": _EXTRACTOR,
    "features_extractor_kwargs": {
        "feature_extractor": "feature_extractor=functools.partial(MyExtractor, width=64)",
    },
    "optimizer_class": {"": "optimizer of the algorithm, such as prl.Adam(eps=1e-5) or prl.RMSprop()"},
    "optimizer_kwargs": {"": "optimizer of the algorithm, such as prl.Adam(eps=1e-5)"},
    "features_extractor": _EXTRACTOR,
    "encoder_factory": _EXTRACTOR,
    "share_features_extractor": {
        "": "no setting: each network has a feature_extractor of its own; shared_body shares all layers but the heads, "
        "and cannot be combined with per_network"
    },
    "vf_share_layers": {"shared_body": "shared_body"},
    "use_batch_norm": {"batch_norm": "batch_norm"},
    "dropout_rate": {"dropout": "dropout"},
    "dueling_param": {"dueling": "dueling"},
    "sigma_init": {"noisy_sigma": "noisy_sigma"},
    "n_critics": {"": "num_critics of the algorithm"},
    **each("observation_space action_space obs_dim action_dim state_dim input_dim state_shape", _SPACES),
    "normalize_images": {"": "no setting: images of uint8 are always scaled to [0, 1]"},
}

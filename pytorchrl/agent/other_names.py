"""Names that other libraries use for the hyper-parameters of algorithms and actors."""

from storages.component.other_names import OtherNames

_BATCH = {
    "mini_batch_size": "mini_batch_size",
    "num_mini_batch": "num_mini_batch, the transitions of a rollout divided by the batch size",
}
_UPDATES = {"replay_ratio": "replay_ratio, on average", "mini_batch_size": "num_mini_batch"}
_EPOCHS = {"num_epochs": "num_epochs"}
_CLIP = {"clip_param": "clip_param"}
_CAPACITY = {"": "size of the storage, in steps; size * num_envs transitions fit"}
_ROLLOUT = {"": "size of the storage, the steps of a rollout"}
_RETURNS = {"start_steps": "n_step of the storage"}
_UNITS = {"hidden_sizes": "hidden_sizes"}
_UNITS_OF_ACTOR = {"": "hidden_sizes of the actor"}
_EXPLORATION = {"epsilon": "epsilon, which may be a LinearSchedule(initial, final, fraction)"}
_START = {"start_steps": "start_steps"}
_PERIOD = {"update_every": "update_every"}
_RATES = {"lr_q": "lr_pi and lr_q", "lr_value": "lr_value, of the value function"}
_EPSILON_OF_ADAM = {"": "optimizer=Adam(eps=...)"}
_OPTIMIZER = {"": "optimizer, such as Adam(eps=1e-5) or RMSprop()"}
_FOLLOWING = {"polyak": "polyak, which is 1 - tau"}
_NOISE = {"exploration_noise": "exploration_noise, or explorer", "explorer": "explorer, such as GaussianNoise(0.1)"}

_OF_OTHER_PARTS: OtherNames = {
    "seed": {"": "seed of Scheme"},
    "device": {"": "device of Scheme"},
    "tensorboard_log": {"": 'log_to=("tensorboard",) of Learner'},
    "total_timesteps": {"": "target_steps of Learner"},
    "num_envs": {"": "num_envs of VecEnv"},
    "n_envs": {"": "num_envs of VecEnv"},
    "policy_kwargs": {"": "several hyper-parameters of the actor"},
}
"""Names that algorithms or policies have elsewhere, and here other parts."""

ALGORITHM_NAMES: OtherNames = {
    **_OF_OTHER_PARTS,
    "learning_rate": {"lr": "lr"} | _RATES,
    "lr": _RATES,
    "actor_lr": {"lr_pi": "lr_pi"},
    "policy_lr": {"lr_pi": "lr_pi"},
    "critic_lr": {"lr_q": "lr_q"},
    "q_lr": {"lr_q": "lr_q"},
    "tau": _FOLLOWING,
    "soft_update_tau": _FOLLOWING,
    "target_update_interval": _FOLLOWING,
    "target_update_frequency": {"target_update_interval": "target_update_interval, in batches"},
    "clip_delta": {"huber_threshold": "huber_threshold, 1.0 where errors are clipped, None where not"},
    "batch_size": _BATCH,
    "minibatch_size": _BATCH,
    "n_minibatches": {"num_mini_batch": "num_mini_batch"},
    "nminibatches": {"num_mini_batch": "num_mini_batch"},
    "n_times_update": _UPDATES,
    "gradient_steps": _UPDATES,
    "n_epochs": _EPOCHS,
    "noptepochs": _EPOCHS,
    "update_epochs": _EPOCHS,
    "clip_range": _CLIP,
    "clip_coef": _CLIP,
    "clip_ratio": _CLIP,
    "ent_coef": {"entropy_coef": "entropy_coef", "initial_alpha": "initial_alpha, fixed where learn_alpha is False"},
    "vf_coef": {"value_loss_coef": "value_loss_coef"},
    "n_critics": {"num_critics": "num_critics"},
    "policy_frequency": {"policy_delay": "policy_delay"},
    "target_policy_noise": {"target_noise": "target_noise"},
    "policy_noise": {"target_noise": "target_noise"},
    "noise_clip": {"target_noise_clip": "target_noise_clip"},
    "action_noise": _NOISE,
    "n_quantiles": {"num_quantiles": "num_quantiles"},
    "quantile_thresholds_N": {"num_quantiles": "num_quantiles"},
    "quantile_thresholds_N_prime": {"num_target_quantiles": "num_target_quantiles"},
    "quantile_thresholds_K": {"num_action_quantiles": "num_action_quantiles"},
    "reward_dimension": {"reward_components": "reward_components, the names of the infos"},
    "risk_measure_function": {"risk": "risk, such as risk_measures.CVaR(0.25)"},
    "munchausen_tau": {"temperature": "temperature"},
    "munchausen_alpha": {"clip_min": "alpha"},
    "target_kl": {"max_kl": "max_kl"},
    "use_sde": {"distribution": "distribution=heads.GSDEPolicy()"},
    "sde_sample_freq": {"distribution": "distribution=heads.GSDEPolicy(resample_every=...)"},
    "epsilon_stddev": {"epsilon_covariance": "epsilon_covariance"},
    "cg_max_steps": {"cg_iterations": "cg_iterations"},
    "cg_damping": {"damping": "damping"},
    "n_critic_updates": {"value_epochs": "value_epochs"},
    "n_times_replay": {"replay_ratio": "replay_ratio, on average"},
    "truncation_threshold": {"truncation": "truncation"},
    "trust_region_delta": {"trust_region": "trust_region"},
    "trust_region_alpha": {"trust_region": "polyak"},
    "use_trust_region": {"trust_region": "trust_region, None for none"},
    "rollout_len": {"path_length": "path_length"},
    "t_max": {"replay_ratio": "update_every, in transitions of all environments"},
    "adam_epsilon": _EPSILON_OF_ADAM,
    "adam_eps": _EPSILON_OF_ADAM,
    "optimizer_class": _OPTIMIZER,
    "optimizer_kwargs": _OPTIMIZER,
    "learning_starts": _START,
    "warmup_steps": _START,
    "replay_start_size": _START,
    "start_timesteps": _START,
    "train_freq": _PERIOD,
    "train_frequency": _PERIOD,
    "update_interval": _PERIOD,
    "learner_update_frequency": _PERIOD,
    "exploration_fraction": _EXPLORATION,
    "exploration_initial_eps": _EXPLORATION,
    "exploration_final_eps": _EXPLORATION,
    "buffer_size": _CAPACITY,
    "n_steps": _RETURNS | _ROLLOUT,
    "num_steps": _RETURNS | _ROLLOUT,
    "n_step": {"": "n_step of the storage"},
    "gae_lambda": {"": "gae_lambda of GAEBuffer"},
    "net_arch": _UNITS_OF_ACTOR,
    "hidden_sizes": _UNITS_OF_ACTOR,
    **{name: {"": f"{name} of the actor"} for name in ("activation", "dueling", "memory", "noisy", "shared_body")},
    "prioritized_replay": {"": "alpha of PERBuffer"},
    "eval_freq": {"test_every": "test_every"},
    "gradient_clip": {"max_grad_norm": "max_grad_norm"},
}

ACTOR_NAMES: OtherNames = {
    **_OF_OTHER_PARTS,
    "net_arch": _UNITS,
    "hidden_size": _UNITS,
    "hidden_dim": _UNITS,
    "hidden_units": _UNITS,
    "lstm_hidden_size": {"memory_size": "memory_size"},
    "activation_fn": {"activation": "activation"},
}

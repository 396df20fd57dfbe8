"""Names that other libraries use for the hyper-parameters of algorithms."""

from pytorchrl.agent.other_names.methods import OF_METHODS, each
from pytorchrl.agent.other_names.other_parts import OF_OTHER_PARTS
from storages.component.other_names import OtherNames

_BATCH = {
    "mini_batch_size": "mini_batch_size",
    "episodes_per_update": "episodes_per_update",
    "num_mini_batch": "num_mini_batch, the transitions of a rollout divided by the batch size",
    "": "size of the storage, the steps of a rollout",
}
_UPDATES = {
    "replay_ratio": "replay_ratio, on average",
    "mini_batch_size": "num_mini_batch",
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
_PERIOD = {"update_every": "update_every, in environment transitions"} | _ROLLOUT
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
        "vf_coef v_loss_coef value_coefficient value_func_coef vf_loss_coeff value_loss_scale Q_loss_coef "
        "value_loss_coef",
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

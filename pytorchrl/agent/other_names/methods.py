"""Names that other libraries use for the hyper-parameters of a few algorithms."""

from collections.abc import Mapping

from storages.component.other_names import OtherNames


def each(names: str, here: Mapping[str, str]) -> OtherNames:
    """Return the entries of several names that mean the same."""
    return dict.fromkeys(names.split(), here)


OF_METHODS: OtherNames = {
    **each("vf_learning_rate", {"lr_value": "lr_value"}),
    **each("discriminator_learning_rate", {"lr_discriminator": "lr_discriminator"}),
    **each("imitator_learning_rate", {"lr_vae": "lr_vae"}),
    **each("alpha_learning_rate", {"lr_multiplier": "lr_multiplier"}),
    **each("decrease_alpha", {"clip_param": "clip_param and lr, which may be a LinearSchedule(initial, 0)"}),
    **each(
        "clip_delta clip_loss_grad",
        {"huber_threshold": "huber_threshold, 1.0 where errors are clipped, None where not"},
    ),
    **each("n_minibatches nminibatches num_minibatches mini_batches", {"num_mini_batch": "num_mini_batch"}),
    **each("beta", {"entropy_coef": "entropy_coef", "kl_weight": "kl_weight"}),
    **each("recompute_advantage", {"": "no setting: advantages are computed once a rollout"}),
    **each(
        "policy_frequency update_actor_interval update_actor_freq policy_update_delay d",
        {"policy_delay": "policy_delay"},
    ),
    **each("target_policy_smoothing_func", {"target_noise": "target_noise, with target_noise_clip"}),
    **each("burnin_action_func", {"burn_in_explorer": "burn_in_explorer, for start_steps"}),
    **each("random_timesteps", {"start_steps": "start_steps, in environment transitions, whose actions are uniform"}),
    **each("entropy_target", {"target_entropy": "target_entropy", "target_entropy_share": "target_entropy_share"}),
    **each("target_entropy", {"target_entropy_share": "target_entropy_share"}),
    **each("fix_temperature", {"learn_alpha": "learn_alpha=False"}),
    **each("reward_scalar", {"reward_scale": "reward_scale"}),
    **each("reward_scale", {"": "no setting: ScaleReward is a wrapper of VecEnv"}),
    **each("n_quantiles", {"num_quantiles": "num_quantiles"}),
    **each("quantile_thresholds_N N", {"num_quantiles": "num_quantiles"}),
    **each("quantile_thresholds_N_prime N_prime", {"num_target_quantiles": "num_target_quantiles"}),
    **each("quantile_thresholds_K K", {"num_action_quantiles": "num_action_quantiles"}),
    **each("embedding_dim", {"num_cosines": "num_cosines"}),
    **each("n_atoms", {"num_atoms": "num_atoms"}),
    **each("z_values", {"num_atoms": "num_atoms, with v_min and v_max"}),
    **each("is_double double_q", {"double": "double"}),
    **each("top_quantiles_to_drop_per_net", {"num_dropped": "num_dropped"}),
    **each("reward_dimension", {"reward_components": "reward_components, the names of the infos"}),
    **each("risk_measure_function", {"risk": "risk, such as risk_measures.CVaR(0.25)"}),
    **each("munchausen_tau entropy_temperature", {"clip_min": "temperature"}),
    **each("munchausen_alpha munchausen_scaling_term", {"clip_min": "alpha"}),
    **each("clipping_value", {"clip_min": "clip_min"}),
    **each("kl_target", {"target_kl": "target_kl, beyond which an update phase stops"}),
    **each("kl_coeff use_kl_loss", {"target_kl": "no setting: no loss has a penalty; target_kl stops an update phase"}),
    **each("use_sde", {"distribution": "distribution=heads.GSDEPolicy()"}),
    **each("sde_sample_freq", {"distribution": "distribution=heads.GSDEPolicy(resample_every=...)"}),
    **each("fixed_ln_var", {"": "no setting: the deviation is learnt; initial_log_std of the actor is the first"}),
    **each("epsilon_stddev", {"epsilon_covariance": "epsilon_covariance"}),
    **each("cg_damping conjugate_gradient_damping", {"damping": "damping"}),
    **each("line_search_max_iter line_search_max_backtrack maximum_backtrack_numbers", {"backtracks": "backtracks"}),
    **each("line_search_shrinking_factor", {"backtrack_ratio": "backtrack_ratio"}),
    **each("vf_batch_size", {"value_mini_batches": "value_mini_batches, the rollout divided by the batch size"}),
    **each("discriminator_update_frequency", {"discriminator_epochs": "discriminator_epochs"}),
    **each("adversary_entropy_coef", {"discriminator_entropy_coef": "discriminator_entropy_coef"}),
    **each("num_rollouts_per_train_iteration", {"episodes_per_update": "episodes_per_update"}),
    **each("n_times_replay training_intensity", {"replay_ratio": "replay_ratio, on average"}),
    **each("truncation_threshold", {"truncation": "truncation"}),
    **each("trust_region_delta", {"trust_region": "trust_region"}),
    **each("trust_region_alpha", {"trust_region": "polyak"}),
    **each("use_trust_region", {"trust_region": "trust_region, None for none"}),
    **each("rollout_len", {"path_length": "path_length"}),
    **each(
        "epsilon",
        {"clip_param": "clip_param", "threshold": "threshold", "entropy_coef": "optimizer, such as RMSprop(eps=...)"},
    ),
    **each("decay", {"entropy_coef": "optimizer, such as RMSprop(alpha=...)"}),
    **each("eval_freq", {"test_every": "test_every, in environment transitions"}),
    **each("num_mmd_actions", {"num_kernel_actions": "num_kernel_actions"}),
    **each("mmd_type mmd_kernel", {"kernel": "kernel"}),
    **each("mmd_sigma", {"kernel": "sigma"}),
    **each("initial_lagrange_multiplier", {"initial_multiplier": "initial_multiplier"}),
    **each("fix_lagrange_multiplier", {"lr_multiplier": "lr_multiplier, 0 for a fixed one"}),
    **each("warmup_iterations", {"warmup_updates": "warmup_updates"}),
    **each("action_flexibility", {"phi": "phi"}),
    **each("phi", {"": "no setting: wrappers of VecEnv change observations"}),
    **each("alpha_threshold", {"lagrange_threshold": "lagrange_threshold"}),
    **each("soft_q_backup", {"backup_entropy": "backup_entropy"}),
    **each("weight_temp", {"inverse_temperature": "inverse_temperature"}),
    **each("context_size", {"context_length": "context_length"}),
}

"""Parameters of other libraries, by our class and by their name here.

An answer is the name here, with the part that has it if that is another: "size of storage". "same" is the same name;
"-" is that there is no such thing here.
"""

from collections.abc import Iterator

PFRL_CHAINERRL_NNABLA = {
    "DQN": """
        -: q_function replay_buffer phi batch_states average_q_decay average_loss_decay; loss_reduction:
        batch_accumulator; -: test_epsilon; same: optimizer gamma explorer target_update_interval max_grad_norm;
        device of Scheme: gpu gpu_id; start_steps: replay_start_size start_timesteps; mini_batch_size:
        minibatch_size batch_size; update_every: update_interval learner_update_frequency; huber_threshold:
        clip_delta; polyak: target_update_method soft_update_tau; num_mini_batch: n_times_update; sequences of
        storage: episodic_update_len; log_to of Learner: logger; memory of actor: recurrent; lr: learning_rate;
        target_update_interval: target_update_frequency; size of storage: replay_buffer_size; epsilon:
        max_explore_steps initial_epsilon final_epsilon; max_grad_norm: grad_clip""",
    "IQN": """
        num_quantiles: quantile_thresholds_N N; num_target_quantiles: quantile_thresholds_N_prime N_prime;
        num_action_quantiles: quantile_thresholds_K K; -: act_deterministically; num_cosines: embedding_dim;
        same: kappa; risk: risk_measure_function""",
    "MunchausenDQN": "temperature: entropy_temperature; alpha: munchausen_scaling_term; clip_min: clipping_value",
    "CategoricalDQN": "num_atoms: n_atoms z_values; same: num_atoms v_min v_max",
    "QRDQN": "same: num_quantiles kappa; num_quantiles: n_quantiles",
    "DDPG": """
        -: policy q_func; same: target_update_interval; optimizers: actor_optimizer critic_optimizer;
        burn_in_explorer: burnin_action_func; polyak: target_update_method tau; sequences of storage:
        episodic_update; exploration_noise: exploration_noise_sigma""",
    "TD3": """
        -: policy q_func1 q_func2; same: max_grad_norm; optimizers: policy_optimizer q_func1_optimizer;
        policy_delay: policy_update_delay d; target_noise: target_policy_smoothing_func
        train_action_noise_sigma; target_noise_clip: train_action_noise_abs; exploration_noise:
        exploration_noise_sigma""",
    "SAC": """
        initial_alpha: initial_temperature; target_entropy: entropy_target; lr_alpha: temperature_optimizer_lr;
        optimizers: temperature_optimizer; -: act_deterministically; same: max_grad_norm; update_every:
        environment_steps; num_mini_batch: gradient_steps; same: target_entropy; learn_alpha: fix_temperature""",
    "SACWithValue": "reward_scale: reward_scalar; same: target_update_interval",
    "A2C": """
        -: model pi_loss_coef use_gae start_timesteps timelimit_as_terminal process_idx keep_loss_scale_same
        normalize_grad_by_t_max use_average_reward average_reward_tau; num_envs of VecEnv: num_processes
        actor_num; size of storage: update_steps n_steps t_max; value_loss_coef: v_loss_coef value_coefficient;
        entropy_coef: entropy_coeff entropy_coefficient beta; gae_lambda of GAEBuffer: tau; optimizer: decay
        epsilon; seed of Scheme: seed""",
    "ACER": """
        update_every: t_max; -: replay_buffer pi_loss_coef normalize_loss_by_steps use_Q_opc; online_update:
        disable_online_update; entropy_coef: beta; value_loss_coef: Q_loss_coef; trust_region: use_trust_region
        trust_region_delta; polyak: trust_region_alpha; truncation: truncation_threshold; replay_ratio:
        n_times_replay; start_steps: replay_start_size""",
    "PCL": """
        update_every: t_max; same: tau; path_length: rollout_len; mini_batch_size: batchsize; -:
        backprop_future_values train_async; online_update: disable_online_update; replay_ratio: n_times_replay;
        value_loss_coef: v_loss_coef""",
    "PGT": "entropy_coef: beta",
    "PPO": """
        normalize_observations of actor: obs_normalizer preprocess_state; gae_lambda of GAEBuffer: lambd lmb;
        value_loss_coef: value_func_coef value_coefficient; same: entropy_coef; size of storage: update_interval
        actor_timesteps; num_mini_batch: minibatch_size batch_size; num_epochs: epochs; clip_param: clip_eps
        epsilon decrease_alpha; use_clipped_value_loss: clip_eps_vf; normalize_advantages:
        standardize_advantages; sequence_length of GAEBuffer: max_recurrent_sequence_len; -: value_stats_window
        timelimit_as_terminal; entropy_coef: entropy_coefficient; num_envs of VecEnv: actor_num; target_steps of
        Learner: total_timesteps""",
    "TRPO": """
        -: vf pi_batch_size; same: entropy_coef; fisher_mini_batch_size: gpu_batch_size; optimizers:
        vf_optimizer; gae_lambda of GAEBuffer: lambd lmb; size of storage: update_interval
        num_steps_per_iteration; same: max_kl; value_epochs: vf_epochs; value_mini_batches: vf_batch_size;
        backtracks: line_search_max_backtrack maximum_backtrack_numbers; cg_iterations:
        conjugate_gradient_max_iter conjugate_gradient_iterations; damping: conjugate_gradient_damping; max_kl:
        sigma_kl_divergence_constraint; lr_value: vf_learning_rate; normalize_observations of actor:
        preprocess_state""",
    "REINFORCE": """
        entropy_coef: beta; episodes_per_update: batchsize num_rollouts_per_train_iteration; -:
        backward_separately reward_scale fixed_ln_var; max_grad_norm: clip_grad_norm""",
    "BCQ": "minimum_weight: lmb; same: phi; num_critics: num_q_ensembles; num_target_actions: num_action_samples",
    "BEAR": """
        minimum_weight: lmb; threshold: epsilon; num_critics: num_q_ensembles; num_kernel_actions:
        num_mmd_actions; num_target_actions: num_action_samples; kernel: mmd_type; sigma: mmd_sigma;
        initial_multiplier: initial_lagrange_multiplier; lr_multiplier: fix_lagrange_multiplier; warmup_updates:
        warmup_iterations; -: use_mean_for_eval""",
    "GAIL": """
        normalize_observations of actor: preprocess_state; -: act_deterministic_in_eval policy_update_frequency
        pi_batch_size; same: discriminator_batch_size; lr_discriminator: discriminator_learning_rate;
        discriminator_epochs: discriminator_update_frequency; discriminator_entropy_coef:
        adversary_entropy_coef; gae_lambda of GAEBuffer: lmb; size of storage: num_steps_per_iteration;
        value_epochs: vf_epochs; value_mini_batches: vf_batch_size; lr_value: vf_learning_rate""",
    "NStepQLearning": "size of storage: t_max; target_update_interval_steps: i_target",
    "PERBuffer": """
        size: capacity; n_step: num_steps; beta: beta0 betasteps; epsilon: eps; weights_over: normalize_by_max;
        same: error_min error_max; default_error: default_priority_func; uniform_share: uniform_ratio; -:
        wait_priority_after_sampling return_sample_weights""",
    "PersistentEpisodicBuffer": "directory: dirname; size: capacity; same: ancestor",
}
STABLE_BASELINES3 = {
    "PPO": """
        -: policy stats_window_size rollout_buffer_class verbose; lr: learning_rate;
        size of storage: n_steps;
        num_mini_batch: batch_size; num_epochs: n_epochs; same: gamma max_grad_norm target_kl; gae_lambda of
        GAEBuffer: gae_lambda; clip_param: clip_range; use_clipped_value_loss: clip_range_vf;
        normalize_advantages: normalize_advantage; entropy_coef: ent_coef; value_loss_coef: vf_coef;
        distribution: use_sde sde_sample_freq; log_to of Learner: tensorboard_log; several of actor:
        policy_kwargs; seed of Scheme: seed; device of Scheme: device; several of storage: rollout_buffer_kwargs""",
    "A2C": """
        optimizer: use_rms_prop rms_prop_eps; size of storage: n_steps; entropy_coef: ent_coef; value_loss_coef:
        vf_coef""",
    "DQN": """
        lr: learning_rate; size of storage: buffer_size; start_steps: learning_starts; mini_batch_size:
        batch_size; polyak: tau; update_every: train_freq; num_mini_batch: gradient_steps; -:
        replay_buffer_class optimize_memory_usage; several of storage: replay_buffer_kwargs; n_step of storage:
        n_steps; same: target_update_interval max_grad_norm; epsilon: exploration_fraction
        exploration_initial_eps exploration_final_eps""",
    "SAC": """
        lr_pi: learning_rate; size of storage: buffer_size; start_steps: learning_starts; mini_batch_size:
        batch_size; polyak: tau; update_every: train_freq; num_mini_batch: gradient_steps; explorer:
        action_noise; initial_alpha: ent_coef; same: target_update_interval target_entropy; distribution:
        use_sde""",
    "TD3": """
        lr_pi: learning_rate; same: policy_delay; target_noise: target_policy_noise; num_critics: n_critics;
        exploration_noise: action_noise""",
    "TQC": "num_dropped: top_quantiles_to_drop_per_net; lr_pi: learning_rate; initial_alpha: ent_coef",
    "TRPO": """
        max_kl: target_kl; cg_iterations: cg_max_steps; damping: cg_damping; backtracks: line_search_max_iter;
        backtrack_ratio: line_search_shrinking_factor; value_epochs: n_critic_updates; lr_value: learning_rate""",
    "OffPolicyActor": """
        hidden_sizes: net_arch; activation: activation_fn; feature_extractor: features_extractor_class;
        -: share_features_extractor; num_critics of algorithm: n_critics; -: normalize_images use_sde""",
    "OnPolicyActor": """
        memory_size: lstm_hidden_size; memory_layers: n_lstm_layers; initialisation: ortho_init; initial_log_std:
        log_std_init""",
    "ReplayBuffer": "size: buffer_size; num_envs of VecEnv: n_envs; -: optimize_memory_usage",
    "HERBuffer": "her_ratio: n_sampled_goal; strategy: goal_selection_strategy",
}
CLEANRL = {
    "PPO": """
        -: exp_name torch_deterministic capture_video; device of Scheme: cuda; log_to of Learner: track
        wandb_project_name; env of VecEnv: env_id; num_envs of VecEnv: num_envs; size of storage: num_steps; lr:
        anneal_lr learning_rate; num_mini_batch: num_minibatches; num_epochs: update_epochs;
        normalize_advantages: norm_adv; clip_param: clip_coef; use_clipped_value_loss: clip_vloss; entropy_coef:
        ent_coef; value_loss_coef: vf_coef; same: target_kl max_grad_norm""",
    "DQN": """
        target_update_interval: target_network_frequency; epsilon: start_e end_e exploration_fraction;
        start_steps: learning_starts; update_every: train_frequency""",
    "SAC": "lr_pi: policy_lr; lr_q: q_lr; policy_delay: policy_frequency; initial_alpha: alpha; learn_alpha: autotune",
    "TD3": """
        target_noise: policy_noise; target_noise_clip: noise_clip; same: exploration_noise; policy_delay:
        policy_frequency""",
    "CategoricalDQN": "num_atoms: n_atoms",
}
D3RLPY = {
    "CQL": """
        mini_batch_size: batch_size; normalize_observations of actor: observation_scaler; -: action_scaler
        q_func_factory; normalize_rewards of Scheme: reward_scaler; lr_pi: actor_learning_rate; lr_q:
        critic_learning_rate; lr_alpha: temp_learning_rate; lr_multiplier: alpha_learning_rate; optimizers:
        actor_optim_factory critic_optim_factory temp_optim_factory; feature_extractor of actor:
        actor_encoder_factory critic_encoder_factory; polyak: tau; num_critics: n_critics; initial_alpha:
        initial_temperature; lagrange_threshold: alpha_threshold; num_samples: n_action_samples; backup_entropy:
        soft_q_backup; same: conservative_weight gamma; compile: compile_graph""",
    "IQL": """
        inverse_temperature: weight_temp; same: max_weight expectile; feature_extractor of actor:
        value_encoder_factory""",
    "BCQ": """
        lr_vae: imitator_learning_rate; minimum_weight: lam; phi: action_flexibility; kl_weight: beta;
        num_target_actions: n_action_samples""",
    "TD3": """
        target_noise: target_smoothing_sigma; target_noise_clip: target_smoothing_clip; policy_delay:
        update_actor_interval""",
    "TD3BC": "same: alpha",
    "ReBRAC": """
        policy_penalty: actor_beta; critic_penalty: critic_beta; target_noise: target_smoothing_sigma;
        policy_delay: update_actor_interval""",
    "DQN": """
        same: target_update_interval; lr: learning_rate; optimizer: optim_factory; feature_extractor of actor:
        encoder_factory""",
    "DecisionTransformer": "context_length: context_size; same: max_timestep num_heads num_layers; lr: learning_rate",
    "DiscreteCQL": "conservative_weight: alpha",
}
TIANSHOU = {
    "DQN": """
        n_step of NStepReplayBuffer: estimation_step n_step_return_horizon; target_update_interval:
        target_update_freq; double: is_double; huber_threshold: clip_loss_grad; -: model deterministic_eval;
        optimizer: optim; num_mini_batch: update_per_step""",
    "PPO": """
        clip_param: eps_clip; same: dual_clip max_grad_norm; use_clipped_value_loss: value_clip;
        normalize_advantages: advantage_normalization; -: recompute_advantage actor critic action_scaling
        action_bound_method test_num; value_loss_coef: vf_coef; entropy_coef: ent_coef; normalize_rewards of
        Scheme: reward_normalization return_scaling; lr: lr_scheduler; num_epochs: repeat_per_collect; size of
        storage: step_per_collect; num_envs of VecEnv: training_num""",
    "TD3": "target_noise: policy_noise; policy_delay: update_actor_freq; target_noise_clip: noise_clip; polyak: tau",
    "SAC": "initial_alpha: alpha; lr_pi: actor_lr; lr_q: critic_lr; lr_alpha: alpha_lr; learn_alpha: auto_alpha",
    "PERBuffer": "size: max_size; weights_over: weight_norm; -: stack_num",
}
RLLIB = {
    "PPO": """
        num_mini_batch: minibatch_size sgd_minibatch_size; num_epochs: num_sgd_iter; max_grad_norm: grad_clip;
        gae_lambda of GAEBuffer: lambda_; same: clip_param; use_clipped_value_loss: vf_clip_param;
        value_loss_coef: vf_loss_coeff; entropy_coef: entropy_coeff; target_kl: kl_target; -: kl_coeff
        use_kl_loss use_gae num_workers num_env_runners num_learners framework; num_envs of VecEnv:
        num_envs_per_env_runner; size of storage: rollout_fragment_length; hidden_sizes of actor: fcnet_hiddens;
        activation of actor: fcnet_activation; memory of actor: use_lstm; memory_size of actor: lstm_cell_size;
        sequence_length of GAEBuffer: max_seq_len; lr: lr_schedule""",
    "DQN": """
        target_update_interval: target_network_update_freq; -: replay_buffer_config; start_steps:
        num_steps_sampled_before_learning_starts; optimizer: adam_epsilon; dueling of actor: dueling; noisy of
        actor: noisy; double: double_q; n_step of NStepReplayBuffer: n_step; same: epsilon; -: lambda_;
        sequences of storage: max_seq_len""",
    "SAC": "lr_pi: actor_lr; lr_q: critic_lr; lr_alpha: alpha_lr; same: initial_alpha target_entropy; polyak: tau",
}
SKRL = {
    "PPO": """
        size of storage: rollouts; num_epochs: learning_epochs; num_mini_batch: mini_batches; gamma:
        discount_factor; lr: learning_rate learning_rate_scheduler; normalize_observations of actor:
        state_preprocessor observation_preprocessor; normalize_rewards of Scheme: value_preprocessor
        rewards_shaper; max_grad_norm: grad_norm_clip; clip_param: ratio_clip; use_clipped_value_loss:
        value_clip clip_predicted_values; entropy_coef: entropy_loss_scale; value_loss_coef: value_loss_scale;
        target_kl: kl_threshold; -: learning_starts time_limit_bootstrap models""",
    "SAC": """
        lr_pi: actor_learning_rate; lr_q: critic_learning_rate; learn_alpha: learn_entropy; lr_alpha:
        entropy_learning_rate; initial_alpha: initial_entropy_value; start_steps: random_timesteps
        learning_starts; same: polyak target_entropy""",
    "TD3": """
        target_noise: smooth_regularization_noise; target_noise_clip: smooth_regularization_clip; same:
        policy_delay""",
}
LIBRARIES = {
    "PFRL, ChainerRL and nnabla-rl": PFRL_CHAINERRL_NNABLA,
    "stable-baselines3": STABLE_BASELINES3,
    "CleanRL": CLEANRL,
    "d3rlpy": D3RLPY,
    "Tianshou": TIANSHOU,
    "RLlib": RLLIB,
    "skrl": SKRL,
}


def answers(library: str) -> Iterator[tuple[str, str, str]]:
    """Yield a class, a name and its answer."""
    for cls, text in LIBRARIES[library].items():
        for entry in text.split(";"):
            answer, _, names = entry.partition(":")
            for name in names.split():
                yield cls, name, " ".join(answer.split())

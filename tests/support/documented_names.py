"""The public classes and functions that the documentation of the predecessors lists."""

PFRL = """
    A2C A3C ACER AL ActionValue AdditiveGaussian AdditiveOU Agent Boltzmann Branched CategoricalDQN CategoricalDoubleDQN
    ConstantEpsilonGreedy DDPG DPP DQN DeterministicHead DiscreteActionValue DistributionalDuelingDQN
    DistributionalFCStateQFunctionWithDiscreteAction DistributionalSingleModelStateQFunctionWithDiscreteAction DoubleDQN
    DoublePAL DuelingDQN EmpiricalNormalization EpisodicReplayBuffer Explorer FCBNLateActionSAQFunction FCBNSAQFunction
    FCLSTMSAQFunction FCLateActionSAQFunction FCQuadraticStateQFunction FCSAQFunction FCStateQFunctionWithDiscreteAction
    FactorizedNoisyLinear GaussianHeadWithDiagonalCovariance GaussianHeadWithFixedCovariance
    GaussianHeadWithStateIndependentCovariance Greedy IQN LargeAtariCNN LinearDecayEpsilonGreedy LinearInterpolationHook
    MLP MLPBN PAL PPO PersistentEpisodicReplayBuffer PersistentReplayBuffer PrioritizedEpisodicReplayBuffer
    PrioritizedReplayBuffer QuadraticActionValue REINFORCE Recurrent RecurrentBranched RecurrentSequential ReplayBuffer
    SingleActionValue SingleModelStateActionQFunction SingleModelStateQFunctionWithDiscreteAction SmallAtariCNN
    SoftActorCritic SoftmaxCategoricalHead StateActionQFunction StateQFunction StepHook TD3 TRPO generate_exp_id
    prepare_output_dir to_factorized_noisy train_agent_async train_agent_batch train_agent_batch_with_evaluation
    train_agent_with_evaluation
"""
CHAINERRL = """
    A2C A3C ACER AL ActionValue AdditiveGaussian AdditiveOU Agent Boltzmann CategoricalDQN CategoricalDoubleDQN
    ConstantEpsilonGreedy ContinuousDeterministicDistribution ContinuousDeterministicPolicy DDPG DPP DQN
    DiscreteActionValue Distribution DistributionalDuelingDQN DistributionalFCStateQFunctionWithDiscreteAction
    DistributionalSingleModelStateQFunctionWithDiscreteAction DoubleDQN DoublePAL DuelingDQN EpisodicReplayBuffer
    Explorer FCBNDeterministicPolicy FCBNLateActionSAQFunction FCBNQuadraticStateQFunction FCBNSAQFunction
    FCDeterministicPolicy FCGaussianPolicy FCGaussianPolicyWithFixedCovariance
    FCGaussianPolicyWithStateIndependentCovariance FCLSTMDeterministicPolicy FCLSTMSAQFunction FCLSTMStateQFunction
    FCLateActionSAQFunction FCQuadraticStateQFunction FCSAQFunction FCSoftmaxPolicy FCStateQFunctionWithDiscreteAction
    GaussianDistribution GaussianHeadWithStateIndependentCovariance Greedy IQN LinearDecayEpsilonGreedy
    LinearInterpolationHook MellowmaxDistribution MellowmaxPolicy NSQ PAL PCL PGT PPO Policy
    PrioritizedEpisodicReplayBuffer PrioritizedReplayBuffer QuadraticActionValue REINFORCE Recurrent ReplayBuffer
    ResidualDQN SARSA SingleActionValue SingleModelStateActionQFunction SingleModelStateQFunctionWithDiscreteAction
    SoftActorCritic SoftmaxDistribution SoftmaxPolicy StateActionQFunction StateQFunction StepHook TD3 TRPO
    collect_demonstrations state_kept state_reset train_agent_async train_agent_batch
    train_agent_batch_with_evaluation train_agent_with_evaluation
"""
NNABLA_RL = """
    A2C A2CConfig BCQ BCQConfig BEAR BEARConfig CategoricalDQN CategoricalDQNConfig DDPG DDPGConfig DQN DQNConfig
    DecorableReplayBuffer DeterministicPolicy Distribution Encoder EnvironmentInfo EvaluationHook GAIL GAILConfig
    Gaussian Hook ICML2015TRPO ICML2015TRPOConfig ICML2018SAC ICML2018SACConfig IQN IQNConfig IterationNumHook
    IterationStateHook MemoryEfficientAtariBuffer Model ModelBuilder MunchausenDQN MunchausenDQNConfig MunchausenIQN
    MunchausenIQNConfig PPO PPOConfig Perturbator Policy PreprocessorBuilder PrioritizedReplayBuffer QFunction QRDQN
    QRDQNConfig QuantileDistributionFunction REINFORCE REINFORCEConfig ReplayBuffer ReplayBufferBuilder RewardFunction
    SAC SACConfig SaveSnapshotHook Softmax SolverBuilder SquashedGaussian StateActionQuantileFunction StochasticPolicy
    TD3 TD3Config TRPO TRPOConfig TimeMeasuringHook VFunction ValueDistributionFunction VariationalAutoEncoder
"""
PYTORCHRL = """
    A2C CNN DDPG DDQN DictNet EREBuffer Embedding FixupCNN GAEBuffer GruNet HERBuffer Learner LstmNet MLP MPC_CEM
    MPC_PDDM MPC_RS MPO ModelBasedPlannerActor NStepReplayBuffer OffPolicyActor OnPolicyActor PERBuffer PPO PPODBuffer
    RND_PPO ReplayBuffer SAC Scheme TD3 VTraceBuffer VanillaOnPolicyBuffer VecEnv atari_train_env_factory
    get_feature_extractor get_memory_network
"""
DOCUMENTED = {
    "PFRL": PFRL.split(),
    "ChainerRL": CHAINERRL.split(),
    "nnabla-rl": NNABLA_RL.split(),
    "PyTorchRL": PYTORCHRL.split(),
}

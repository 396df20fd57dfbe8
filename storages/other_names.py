"""Names of PyTorchRL and other libraries for hyper-parameters, attributes and methods of storages."""

from collections.abc import Mapping

from storages.component.other_names import OtherNames

_CAPACITY = {"size": "size, in steps; size * num_envs transitions fit"}
_ROLLOUT = {"n_step": "n_step", "sequence_length": "size, the steps of a rollout", "": "n_step of NStepReplayBuffer"}
_LAMBDA = {"gae_lambda": "gae_lambda", "trace_lambda": "trace_lambda", "": "gae_lambda of GAEBuffer"}

_BETA = {"beta": "beta, which may be a LinearSchedule(initial, 1)"}

STORAGE_NAMES: OtherNames = {
    "buffer_size": _CAPACITY,
    "capacity": _CAPACITY,
    "max_size": _CAPACITY,
    "limit": _CAPACITY,
    "memory_size": _CAPACITY,
    "replay_size": _CAPACITY,
    "n_steps": _ROLLOUT,
    "num_steps": _ROLLOUT,
    "rollout_length": _ROLLOUT,
    "n_step_return": _ROLLOUT,
    "rollouts": _ROLLOUT,
    "lam": _LAMBDA,
    "lambda_": _LAMBDA,
    "batch_size": {"": "mini_batch_size or num_mini_batch of the algorithm"},
    "optimize_memory_usage": {"": "no setting: each observation is kept once"},
    "device": {"": "device of Scheme"},
    "gamma": {"": "gamma of the algorithm"},
    **{name: {"": f"{name} of PERBuffer"} for name in ("alpha", "beta", "default_error", "uniform_share")},
    **{name: {"": f"{name} of EREBuffer"} for name in ("eta", "cmin")},
    "n_step": {"": "n_step of NStepReplayBuffer"},
    "gae_lambda": {"": "gae_lambda of GAEBuffer"},
    "eps": {"epsilon": "epsilon"},
    "beta0": _BETA,
    "betasteps": _BETA,
    "beta_schedule": _BETA,
    "prioritized_replay_alpha": {"alpha": "alpha"},
    "prioritized_replay_beta": _BETA,
    "normalize_by_max": {"weights_over": 'weights_over, "batch", "stored" or "none"'},
    "weight_norm": {"weights_over": 'weights_over, "batch", "stored" or "none"'},
    "uniform_ratio": {"uniform_share": "uniform_share"},
    "default_priority_func": {"default_error": "default_error"},
    "wait_priority_after_sampling": {"": "no setting: rows may be drawn again before their errors come"},
    "return_sample_weights": {"": "no setting: batches hold their weights"},
    "dirname": {"directory": "directory", "": "no setting: rollouts stay in memory"},
    "n_envs": {"": "num_envs of VecEnv"},
    "num_envs": {"": "num_envs of VecEnv"},
    "n_sampled_goal": {"her_ratio": "her_ratio, n / (n + 1)"},
    "goal_selection_strategy": {"strategy": "strategy"},
    "handle_timeout_termination": {"": "no setting: states at time limits keep their value"},
    "stack_num": {"": "no setting: stacked frames of the environments are kept once"},
    "observation_space": {"": "no setting: the environments have the spaces"},
    "action_space": {"": "no setting: the environments have the spaces"},
    "max_priority": {"default_error": "default_error"},
}

_INSERT = "storage.insert_transition(sample) inserts a dict with one step of all environments"
_BATCHES = "storage.generate_batches(num_mini_batch, mini_batch_size) yields batches"
_SLICE = "storage.get_data_slice(start, end) returns copies of the stored steps, the oldest first, in a dict"
_SAVE = "storage.state_dict() returns what storage.load_state_dict(state) restores; checkpoints of a run hold it"
_PREPARE = "storage.before_gradients() computes returns and advantages of a rollout"

STORAGE_ATTRIBUTES: Mapping[str, str] = {
    **dict.fromkeys(("add", "append", "extend", "push", "store", "store_transition", "put", "observe_step"), _INSERT),
    **dict.fromkeys(("insert", "add_batch", "add_transition", "remember", "save_transition"), _INSERT),
    **dict.fromkeys(("sample", "sample_batch", "get", "sample_indices", "sample_tensors"), _BATCHES),
    **dict.fromkeys(("obs", "act", "rew", "observations", "actions", "rewards", "buffer"), _SLICE),
    "get_priority": "PERBuffer and its subclasses have it",
    "get_sequence_priority": "PERBuffer and its subclasses have it",
    "handle_end_of_episode": "HERBuffer and its subclasses have it",
    **dict.fromkeys(("save", "load", "dump", "restore"), _SAVE),
    **dict.fromkeys(("compute_returns", "compute_returns_and_advantage", "finish_path", "compute_gae"), _PREPARE),
    **dict.fromkeys(("update_priorities", "update_weight"), "storage.after_gradients(batch, info) updates priorities"),
    **dict.fromkeys(("clear", "empty"), "storage.reset() drops all steps"),
    **dict.fromkeys(("full", "is_full"), "len(storage) == storage.capacity where it is full"),
    **dict.fromkeys(("pos", "ptr"), "len(storage) transitions are stored"),
    **dict.fromkeys(("buffer_size", "max_size", "maxlen"), "storage.size is the capacity in steps"),
    "step": "storage.inserted // storage.num_envs steps were inserted so far",
    "algo": "storage.algorithm is the algorithm",
    "recurrent_actor": "sequences=Sequences(...) makes batches for recurrent actors",
}
"""Attributes of storages of PyTorchRL and other libraries that not all storages here have, and what is here instead."""
NO_ITEMS = f"{_SLICE}, and {_BATCHES}"
"""What is here instead of ``storage[...]`` and of loops over a storage."""
NEVER_CALLED: Mapping[str, str] = {
    "get_priority": "the sampler computes priorities by itself; make_sampler makes another one",
    "get_sequence_priority": "the sampler computes priorities by itself; make_sampler makes another one",
    "handle_end_of_episode": "goals are relabelled when a batch is made; make_relabeler makes another relabeler",
}
"""Methods of storages of PyTorchRL that nothing calls here, so that subclasses cannot override them."""
STORAGE_ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "get_data_slice": {"start_pos": "start", "end_pos": "end"},
    "insert_data_slice": {"new_data": "data"},
    "update_storage_parameter": {"parameter_name": "name", "new_parameter_value": "value"},
}
"""Parameters of methods of PyTorchRL's storages, which may be named so, and their names here."""

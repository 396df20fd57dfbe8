"""Names that other libraries use for the hyper-parameters of actors."""

from storages.component.other_names import OtherNames

_UNITS = {"hidden_sizes": "hidden_sizes"}
_EXTRACTOR = {"feature_extractor": "feature_extractor"}
_MEMORY = {"memory": 'memory, "gru" or "lstm"'}
_MEMORY_SIZE = {"memory_size": "memory_size"}
_MEMORY_LAYERS = {"memory_layers": "memory_layers"}

ACTOR_NAMES: OtherNames = {
    "seed": {"": "seed of Scheme"},
    "device": {"": "device of Scheme"},
    "learning_rate": {"": "lr of the algorithm"},
    "policy_kwargs": {"": "several hyper-parameters of the actor"},
    "net_arch": _UNITS,
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
    "features_extractor": _EXTRACTOR,
    "encoder_factory": _EXTRACTOR,
    "share_features_extractor": {"shared_body": "shared_body"},
    "vf_share_layers": {"shared_body": "shared_body"},
    "use_batch_norm": {"batch_norm": "batch_norm"},
    "dropout_rate": {"dropout": "dropout"},
    "dueling_param": {"dueling": "dueling"},
    "sigma_init": {"noisy_sigma": "noisy_sigma"},
    "n_critics": {"": "num_critics of the algorithm"},
    "normalize_images": {"": "no setting: images of uint8 are always scaled to [0, 1]"},
}

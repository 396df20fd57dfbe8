"""Refuse ``from pytorchrl.common.callbacks import ...``, which replaces the name of stable-baselines3 in a script."""

raise ModuleNotFoundError(
    "pytorchrl has no module 'common': all public names are in pytorchrl itself, such as prl.StopAtReturn after "
    "`import pytorchrl as prl`. A name of stable-baselines3 is answered with what to write here, such as "
    "`from pytorchrl import EvalCallback`; docs/coming-from-others.md lists them",
    name="pytorchrl.common",
)

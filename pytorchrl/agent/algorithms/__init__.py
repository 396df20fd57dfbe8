"""Reinforcement and imitation learning algorithms, and the base classes for new ones."""

from storages.names_on_demand import names_on_demand as _names_on_demand

__getattr__, __dir__, __all__ = _names_on_demand(__name__)

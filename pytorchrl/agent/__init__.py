"""The parts of an agent: environments, actors, algorithms and storages."""

"""Pictures of runs, data sets and storages."""

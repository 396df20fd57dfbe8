"""Helpers of the tests: slow models of storages, toy environments, processes that are killed."""

"""Helpers of the tests: reference models of storages, toy environments, processes to be killed."""

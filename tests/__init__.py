"""The tests of `storages`, `pytorchrl`, the examples and the documentation."""

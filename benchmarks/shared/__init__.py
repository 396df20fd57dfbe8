"""What several benchmarks need: rounds, targets, tables, a description of the machine."""

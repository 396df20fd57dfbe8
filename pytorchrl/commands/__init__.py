"""Commands of ``python -m pytorchrl`` whose options follow from the classes that they compose."""

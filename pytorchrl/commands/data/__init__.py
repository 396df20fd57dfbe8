"""``python -m pytorchrl data``: make, collect, list, show, convert, merge, prune and split data sets."""

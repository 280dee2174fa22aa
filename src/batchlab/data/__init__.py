"""Datasets with access by index, and the sample order: the same tokens in the same order for every batch size."""

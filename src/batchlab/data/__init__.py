"""Samples by index, and the order in which they are served. The same tokens in the same order for every batch size."""

"""The stages of a study. Each executes specs, and settles what the next one needs as a decision on disk.

A stage run again finds its records and decisions and does only what is missing.
"""

"""The stages of a study. Each executes specs and keeps what the next one needs as a decision on disk.

A stage that is run again finds its records and decisions and does only what is missing.
"""

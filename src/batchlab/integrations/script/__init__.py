"""A person's own script, run as it is by the command in a study.toml."""

"""Overrides globals of the script that executes this file: a config file, or --name=value."""

import sys
from ast import literal_eval

for argument in sys.argv[1:]:
    if "=" not in argument:
        exec(open(argument).read())
        continue
    key, value = argument[2:].split("=", 1)
    if key not in globals():
        raise ValueError(f"Unknown config key: {key}")
    try:
        value = literal_eval(value)
    except (SyntaxError, ValueError):
        pass
    globals()[key] = value

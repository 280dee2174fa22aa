"""A script with key=value arguments, an epoch-based loop, and losses in a JSON-lines file."""

import json
import sys

from problem import Problem

config = {"batch": 16, "lr": 0.01, "epochs": 2, "seed": 0, "log": "metrics.jsonl"}
for argument in sys.argv[1:]:
    key, _, value = argument.partition("=")
    config[key] = type(config[key])(value)

problem = Problem(config["seed"], samples=256)
steps_per_epoch = 256 // config["batch"]
with open(config["log"], "w") as log:
    for epoch in range(config["epochs"]):
        for step in range(steps_per_epoch):
            loss = problem.step(config["lr"], [problem.batch(config["batch"])])
        row = {"step": (epoch + 1) * steps_per_epoch, "train/loss": loss, "eval/loss": problem.evaluate()}
        log.write(json.dumps(row) + "\n")

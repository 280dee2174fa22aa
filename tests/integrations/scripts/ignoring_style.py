"""A script that has an option for the batch size, and a loader that somebody gave a constant."""

import argparse

from problem import Problem

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

problem = Problem(args.seed)
for step in range(1, args.steps + 1):
    loss = problem.step(args.lr, [problem.batch(8)])
    if step % 10 == 0 or step == args.steps:
        print(f"step {step} train loss {loss:.5f}")
print(f"val loss {problem.evaluate():.5f}")

"""A script that trains for a time. It prints its loss, and a score in percent."""

import argparse
import time

from problem import Problem

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8)
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--seconds", type=float, default=60.0)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

problem = Problem(args.seed)
step, end = 0, time.monotonic() + args.seconds
while time.monotonic() < end:
    loss = problem.step(args.lr, [problem.batch(args.batch_size)])
    step += 1
    time.sleep(0.002)
    if step % 20 == 0:
        print(f"step {step}: train loss {loss:.6f}", flush=True)
print(f"step {step}: val loss {problem.evaluate():.6f}")
print(f"explained: {100 * (1 - problem.evaluate() / problem.valid_y.var()):.2f}%")

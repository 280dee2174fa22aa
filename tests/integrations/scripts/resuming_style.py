"""A script that saves what it needs to go on, and goes on from it with --resume true."""

import argparse
import json
import os

import numpy as np
from problem import Problem

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8)
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--max_steps", type=int, default=100)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out_dir", default="out")
parser.add_argument("--resume", default="false")
parser.add_argument("--stop_at", type=int, default=0, help="where training runs are killed, unless they were resumed")
args = parser.parse_args()

saved = os.path.join(args.out_dir, "state")
first, problem = 0, Problem(args.seed)
if args.resume == "true" and os.path.exists(saved):
    with open(saved) as file:
        state = json.load(file)
    first, problem.random.bit_generator.state = state["step"], state["random"]
    problem.weights, problem.velocity = np.array(state["weights"]), np.array(state["velocity"])
    print(f"resumed at step {first}")
for step in range(first, args.max_steps):
    if args.stop_at and step == args.stop_at and first == 0 and "train-" in os.path.abspath(args.out_dir):
        os.kill(os.getpid(), 9)
    if step % 10 == 0:
        arrays = {"weights": problem.weights.tolist(), "velocity": problem.velocity.tolist()}
        with open(saved + ".new", "w") as file:
            json.dump({"step": step, "random": problem.random.bit_generator.state, **arrays}, file)
        os.replace(saved + ".new", saved)
    problem.step(args.lr, [problem.batch(args.batch_size)])
print(f"step {args.max_steps}: val loss {problem.evaluate():.6f}")

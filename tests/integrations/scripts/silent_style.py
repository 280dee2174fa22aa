"""A script that prints nothing: it saves its weights at the end."""

import argparse
import os

import numpy as np
from problem import Problem

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", default="out")
args = parser.parse_args()

problem = Problem(args.seed)
for _ in range(args.steps):
    problem.step(args.lr, [problem.batch(args.batch_size)])
np.save(os.path.join(args.out, "weights.npy"), problem.weights)

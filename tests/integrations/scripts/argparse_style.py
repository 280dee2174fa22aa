"""A script in the style of argparse. It prints its validation loss and fails in the ways that its options ask for."""

import argparse
import os
import sys
import time

from problem import Problem

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8)
parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
parser.add_argument("--learning_rate", "--lr", type=float, default=1e-2)
parser.add_argument("--max_iters", type=int, default=100)
parser.add_argument("--warmup_iters", type=int, default=0)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out_dir", default="out")
parser.add_argument("--fail", default="", help="how to misbehave")
args = parser.parse_args()

if "silent" in args.fail:
    sys.exit(0)
if "oom" in args.fail and args.batch_size >= 16:
    raise MemoryError("Unable to allocate 9.31 GiB for an array with shape (16,)")
if "crash" in args.fail:
    raise ValueError("the shapes do not match")
if "hang" in args.fail:
    print("hanging", flush=True)
    time.sleep(600)
if "fork" in args.fail:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open(os.path.join(args.out_dir, "orphan.pid"), "w").write(str(os.getpid()))
            time.sleep(600)
        os._exit(0)
    os.wait()
    while not os.path.exists(os.path.join(args.out_dir, "orphan.pid")):
        time.sleep(0.01)
if "print" in args.fail:
    for _ in range(3000):
        sys.stdout.write("x" * 9999 + "\n")

problem = Problem(0 if "unseeded" in args.fail else args.seed)
if "random" in args.fail:
    problem.random.bit_generator.advance(time.time_ns() % 2**40)
size = 8 if "ignore" in args.fail else args.batch_size
for step in range(1, args.max_iters + 1):
    rate = args.learning_rate * min(1.0, step / args.warmup_iters) if args.warmup_iters else args.learning_rate
    loss = problem.step(rate, [problem.batch(size) for _ in range(args.gradient_accumulation_steps)])
    if step % 10 == 0 or step == args.max_iters:
        print(f"step {step}: train loss {loss:.6f}, val loss {problem.evaluate():.6f}")

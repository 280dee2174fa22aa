"""A script in the style of nanoGPT: module-level globals, overridden by a configurator."""

import os

from problem import Problem

out_dir = "out"
eval_interval = 50
log_interval = 10
batch_size = 12  # if gradient_accumulation_steps > 1, this is the micro-batch size
gradient_accumulation_steps = 1
block_size = 16
learning_rate = 1e-2  # max learning rate
max_iters = 200
warmup_iters = 0
seed = 1337
config_keys = [k for k, v in globals().items() if not k.startswith("_") and isinstance(v, (int, float, bool, str))]
exec(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "configurator.py")).read())
config = {k: globals()[k] for k in config_keys}

os.makedirs(out_dir, exist_ok=True)
problem = Problem(seed)
iter_num = 0
while True:
    rate = learning_rate * min(1.0, (iter_num + 1) / (warmup_iters + 1))
    if iter_num % eval_interval == 0:
        print(f"step {iter_num}: val loss {problem.evaluate():.4f}")
    loss = problem.step(rate, [problem.batch(batch_size) for _ in range(gradient_accumulation_steps)])
    if iter_num % log_interval == 0:
        print(f"iter {iter_num}: loss {loss:.4f}")
    iter_num += 1
    if iter_num > max_iters:
        break

"""Data-parallel training on CPUs, started by torchrun. Its batch size is that of all processes together."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=16, help="of all processes")
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--max_steps", type=int, default=100)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = int(os.environ["RANK"]), dist.get_world_size()
random = torch.Generator().manual_seed(1)
x = torch.randn(2304, 16, generator=random)
y = x @ torch.randn(16, 1, generator=random) + 0.5 * torch.randn(2304, 1, generator=random)

torch.manual_seed(args.seed)
model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
data = TensorDataset(x[:2048], y[:2048])
sampler = DistributedSampler(data, world, rank, shuffle=True, seed=args.seed)
loader = DataLoader(data, batch_size=args.batch_size // world, sampler=sampler)
step, epoch = 0, 0
while step < args.max_steps:
    sampler.set_epoch(epoch)
    epoch += 1
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: train loss {loss.item():.5f}", flush=True)
        if step == args.max_steps:
            break
with torch.no_grad():
    held_out = nn.functional.mse_loss(model(x[2048:]), y[2048:])
if rank == 0:
    print(f"val loss {held_out.item():.5f}", flush=True)
dist.destroy_process_group()

"""One rank of a real FSDP2 or DDP run with gloo: prints what it holds as JSON. Started by test_sharding_units.py."""

from __future__ import annotations

import json
import os
import sys

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from batchlab.torch_.ranks import leave

WIDTH, VOCABULARY, LAYERS = 6, 13, 3
"""No dimension is a multiple of four, so that shards are padded."""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 9), nn.Linear(9, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        added: torch.Tensor = x + self.down(self.up(self.norm(x)).relu())
        return added


class Model(nn.Module):
    """Tied embedding and output, three blocks, one frozen parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.scale = nn.Parameter(torch.ones(WIDTH), requires_grad=False)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) * self.scale
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(x)
        return logits


def storage_bytes(tensors: list[torch.Tensor]) -> int:
    """Bytes of the storages behind these tensors, each once."""
    local = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in local}
    return sum(storages.values())


def main() -> None:
    rank, devices, file = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=devices)
    torch.manual_seed(0)
    model = Model()
    mesh = init_device_mesh("cpu", (devices,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        model(torch.arange(4).reshape(1, 4)).logsumexp(-1).sum().backward()
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        held = storage_bytes(gradients)
        optimizer.step()
        optimizer.zero_grad()
    moments = [tensor for state in optimizer.state.values() for name, tensor in state.items() if name != "step"]
    print(json.dumps([storage_bytes(list(model.parameters())), held, storage_bytes(moments)]))
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
    leave()

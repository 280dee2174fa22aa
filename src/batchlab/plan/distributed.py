"""How a plan is started on several devices and nodes: command lines of torchrun, srun and accelerate.

Each starts `batchlab train PLAN` as one of the plan's ranks. Options as of torch 2.13 (torch.distributed.run), Slurm
22.05 (srun) and accelerate 1.15 (accelerate launch).
"""

from __future__ import annotations

from batchlab.plan.training_plan import DistributedConfig

PORT = 29500
"""torchrun's own default."""

_TRAIN = "-m batchlab train training_plan.json"
_FIRST_NODE = " ".join(('"$(scontrol show hostnames', '"$SLURM_JOB_NODELIST"', '| head -n 1)"'))


def distributed_config(nodes: int, devices_per_node: int, *, device: str, trains: bool) -> DistributedConfig:
    """The layout over nodes. trains: whether batchlab trains the task, and so knows a command.

    On several nodes, the lines of torchrun and accelerate are given on every node, with MASTER_ADDR set to the first
    node's name, and for accelerate NODE_RANK to the number of the node. srun's line is one of a batch script.
    """
    if not trains:
        return DistributedConfig(nodes=nodes, devices_per_node=devices_per_node)
    cards = device.startswith("cuda")
    launch = {
        "torchrun": f"{_torchrun(nodes, devices_per_node, '$MASTER_ADDR')} {_TRAIN}",
        "srun": " ".join(
            [
                f"srun --nodes={nodes} --ntasks-per-node=1",
                *([f"--gpus-per-node={devices_per_node}"] if cards else []),
                _torchrun(nodes, devices_per_node, _FIRST_NODE),
                _TRAIN,
            ]
        ),
    }
    if cards:
        launch["accelerate"] = f"{_accelerate(nodes, devices_per_node)} {_TRAIN}"
    return DistributedConfig(nodes=nodes, devices_per_node=devices_per_node, launch=launch)


def _torchrun(nodes: int, devices: int, first: str) -> str:
    if nodes == 1:
        return f"torchrun --standalone --nproc-per-node {devices}"
    meeting = f"--rdzv-backend c10d --rdzv-endpoint {first}:{PORT}"
    return f"torchrun --nnodes {nodes} --nproc-per-node {devices} {meeting}"


def _accelerate(nodes: int, devices: int) -> str:
    words = [
        *("accelerate launch", "--multi_gpu" if nodes * devices > 1 else ""),
        *(f"--num_machines {nodes} --num_processes {nodes * devices}", "--mixed_precision no --dynamo_backend no"),
    ]
    if nodes > 1:
        words.append(f"--machine_rank $NODE_RANK --main_process_ip $MASTER_ADDR --main_process_port {PORT}")
    return " ".join(word for word in words if word)

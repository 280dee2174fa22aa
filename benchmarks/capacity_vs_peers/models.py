"""The models that capacity is judged on, as newcomers would write them, each under one memory limit.

They were split at random before batchlab had answered on any of them: `random.Random(20261122).shuffle` of the sorted
names, first half held out. Code was changed by looking at the development half only; the held-out half was run once,
after that. Limits give between about 20 and a few hundred samples. Six limits were raised after the first answer (gan
within 24 MB), where scratch memory of kernels took three quarters of the limit and true sizes of three processes were
9, 9 and 13; of those six, vq_vae, ema and ragged_collate are held out, and nothing had been run on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Model:
    """One task file of workloads/ and the limit it gets."""

    name: str
    limit: int
    half: Literal["development", "held out"]

    @property
    def task_file(self) -> Path:
        return HERE / "workloads" / f"{self.name}.py"


MODELS = (
    Model("batchnorm_cnn", 80_000_000, "development"),
    Model("big_embedding", 100_000_000, "development"),
    Model("custom_function", 60_000_000, "development"),
    Model("diffusion", 50_000_000, "development"),
    Model("gan", 60_000_000, "development"),
    Model("gpt_lora", 110_000_000, "development"),
    Model("gradient_penalty", 60_000_000, "development"),
    Model("halting", 70_000_000, "development"),
    Model("layer_drop", 100_000_000, "development"),
    Model("noisy_teacher", 60_000_000, "development"),
    Model("packed_bilstm", 45_000_000, "development"),
    Model("point_cloud", 75_000_000, "development"),
    Model("qlora", 110_000_000, "development"),
    Model("segmentation", 100_000_000, "development"),
    Model("simclr", 70_000_000, "development"),
    Model("checkpointed", 50_000_000, "held out"),
    Model("chunked_loss", 75_000_000, "held out"),
    Model("contrastive", 64_000_000, "held out"),
    Model("dict_batches", 134_000_000, "held out"),
    Model("ema", 70_000_000, "held out"),
    Model("encoder_decoder", 110_000_000, "held out"),
    Model("ensemble_vmap", 60_000_000, "held out"),
    Model("gru_cells", 60_000_000, "held out"),
    Model("moe", 75_000_000, "held out"),
    Model("ragged_collate", 60_000_000, "held out"),
    Model("sparse_embedding", 40_000_000, "held out"),
    Model("tied_weights", 60_000_000, "held out"),
    Model("two_optimizers", 95_000_000, "held out"),
    Model("vq_vae", 60_000_000, "held out"),
)

"""Blocks, norm layers and groups are found in arbitrary models."""

from __future__ import annotations

import torch
from torch import nn

from batchlab.core.parameter_groups import by_block
from batchlab.torch_ import anatomy
from batchlab.torch_.models import Decoder


class Alone(nn.Module):
    """Has parameters but no submodules."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))


class MyNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(4))
        self.beta = nn.Parameter(torch.zeros(4))


def test_a_decoder_comes_apart_into_its_blocks():
    model = Decoder(256, 16, 32, 5, 2, 64)
    blocks = anatomy.blocks(model)
    assert list(blocks) == [f"blocks.{i}" for i in range(5)]
    groups = by_block(anatomy.trainable_parameters(model), blocks)
    assert list(groups) == ["embedding", *blocks, "norm", "head"]
    assert groups["embedding"] == ["embedding.weight"]
    assert len(anatomy.norm_parameters(model, anatomy.trainable_parameters(model))["weight"]) == 11


def test_ten_blocks_are_told_apart_by_whole_names():
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(11)))
    groups = by_block(anatomy.trainable_parameters(model), anatomy.blocks(model))
    assert groups["1"] == ["1.weight", "1.bias"]
    assert groups["10"] == ["10.weight", "10.bias"]


def test_torchs_own_encoder_and_a_plain_stack():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 3)
    assert list(anatomy.blocks(encoder)) == ["layers.0", "layers.1", "layers.2"]
    stack = nn.Sequential(nn.Linear(8, 4), nn.GELU(), nn.Linear(4, 2))
    assert list(anatomy.blocks(stack)) == ["0", "2"]


def test_a_model_in_which_nothing_repeats():
    assert anatomy.blocks(Alone()) == {}
    assert by_block(anatomy.trainable_parameters(Alone()), ()) == {"scale": ["scale"]}
    assert list(anatomy.blocks(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))) == ["0", "1"]


def test_a_persons_norm_layer_is_known_by_its_name():
    model = nn.Sequential(nn.Linear(4, 4), MyNorm(), nn.BatchNorm1d(4))
    found = anatomy.norm_parameters(model, anatomy.trainable_parameters(model))
    assert found == {"weight": ["1.gain", "2.weight"], "bias": ["1.beta", "2.bias"]}


def test_frozen_parameters_are_left_out():
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    assert list(anatomy.trainable_parameters(model)) == ["weight"]

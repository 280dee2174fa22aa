"""Attention entropy compared with known values, for every supported way of calling attention."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from batchlab.torch_.attention_entropy import QUERIES, AttentionEntropy, entropy


def seen(run, place=()):
    with AttentionEntropy(lambda: place) as watch, torch.no_grad():
        run()
    return watch


@pytest.mark.parametrize("keys", [1, 2, 7, 300])
def test_uniform_attention_has_the_entropy_ln_n(keys):
    value, limit = entropy(torch.full((2, 3, keys), 1 / keys))
    torch.testing.assert_close(value, torch.full((2, 3), math.log(keys)), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(limit, torch.full((2, 3), math.log(keys)))


def test_one_key_alone_has_none_and_masked_rows_count_not():
    weights = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    value, limit = entropy(weights)
    assert value[0] == 0
    assert limit[0] == 0
    assert limit[1].isnan()


def test_equal_keys_under_a_causal_mask():
    """Query i attends to i + 1 equal keys; for 4 positions, the mean of ln 1 … ln 4."""
    key = torch.zeros(1, 2, 4, 8)
    watch = seen(lambda: F.scaled_dot_product_attention(torch.randn(1, 2, 4, 8), key, key, is_causal=True))
    expected = sum(math.log(n) for n in (1, 2, 3, 4)) / 4
    assert watch.seen["model"].tolist() == pytest.approx([expected] * 2)
    assert float(watch.uniform["model"]) == pytest.approx(expected)


def by_hand(query, key, mask=None, scale=None):
    """The full softmax matrix in float64; entropies of the last query, one per head."""
    scores = query.double() @ key.double().transpose(-2, -1) * (scale or query.shape[-1] ** -0.5)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = scores.softmax(-1)
    rows = (
        [(i + 1) * query.shape[-2] // QUERIES - 1 for i in range(QUERIES)] if query.shape[-2] > QUERIES else slice(None)
    )
    return -(weights * weights.clamp_min(1e-300).log()).sum(-1)[..., rows].mean(dim=(0, 2))


@pytest.mark.parametrize("masked", ["no", "bool", "additive", "causal"])
def test_dot_product_attention_against_the_whole_matrix(masked):
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 40, 8).unbind(0)
    mask = torch.rand(40, 40) < 0.5
    mask[:, 0] = True
    arguments: dict[str, dict[str, Any]] = {
        "no": {},
        "bool": {"attn_mask": mask},
        "additive": {"attn_mask": torch.zeros(40, 40).masked_fill(~mask, -math.inf)},
        "causal": {"is_causal": True},
    }
    true_mask = {"no": None, "causal": torch.ones(40, 40, dtype=torch.bool).tril()}.get(masked, mask)
    watch = seen(lambda: F.scaled_dot_product_attention(query, key, value, scale=0.7, **arguments[masked]))
    expected = by_hand(query, key, true_mask, 0.7)
    assert watch.seen["model"].tolist() == pytest.approx(expected.tolist(), rel=1e-5)


def test_grouped_queries_share_keys():
    torch.manual_seed(0)
    query, key = torch.randn(2, 4, 9, 8), torch.randn(2, 2, 9, 8)
    watch = seen(lambda: F.scaled_dot_product_attention(query, key, key, enable_gqa=True))
    expected = by_hand(query, key.repeat_interleave(2, dim=1))
    assert watch.seen["model"].tolist() == pytest.approx(expected.tolist(), rel=1e-5)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_multihead_attention_is_read_as_it_would_tell_itself(batch_first, causal):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(16, 4, batch_first=batch_first).eval()
    x = torch.randn(3, 6, 16) if batch_first else torch.randn(6, 3, 16)
    mask = nn.Transformer.generate_square_subsequent_mask(6) if causal else None
    with torch.no_grad():
        _, weights = module(x, x, x, attn_mask=mask, average_attn_weights=False)
    expected = entropy(weights)[0].mean(dim=(0, 2))
    watch = seen(lambda: module(x, x, x, attn_mask=mask, is_causal=causal, need_weights=False))
    assert watch.seen["model"].tolist() == pytest.approx(expected.tolist(), rel=1e-5)


def test_a_softmax_counts_only_inside_attention():
    scores = torch.randn(2, 4, 5, 5)
    expected = entropy(scores.softmax(-1))[0].mean(dim=(0, 2))
    assert not seen(lambda: scores.softmax(-1), ["router Gate"]).seen
    assert not seen(lambda: scores.softmax(1), ["h.0.attn Attention"]).seen
    for call in (lambda: scores.softmax(-1), lambda: F.softmax(scores, dim=3), lambda: torch.softmax(scores, -1)):
        found = seen(call, ["h.0 Block", "h.0.attn SelfAttention"]).seen
        assert found["h.0.attn"].tolist() == pytest.approx(expected.tolist(), rel=1e-5)

"""The shipped models: their sizes, their causality, and the same numbers from independent implementations."""

from __future__ import annotations

import pytest
import torch

from batchlab.torch_.models import Decoder, LadderLM, PostNormDecoder
from batchlab.torch_.models.decoder import rotary_table, rotate


def parameters(model):
    return sum(value.numel() for value in model.parameters())


def test_parameter_counts():
    assert parameters(Decoder(256, 64, 64, 2, 4, 192)) == 139_584
    with torch.device("meta"):
        assert parameters(Decoder(10_000, 256, 512, 4, 16, 1344)) == 22_696_448
        assert parameters(PostNormDecoder(50_260, 1024, 768, 12, 8)) == 12 * (12 * 768**2 + 13 * 768) + 1537 * 50_260
        assert parameters(LadderLM(256, 3584, 6)) == 386_340_864


MODELS = {
    "decoder": lambda: Decoder(17, 12, 16, 2, 2, 24),
    "post-norm": lambda: PostNormDecoder(17, 12, 16, 2, 2),
    "ladder": lambda: LadderLM(17, 16, 2),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_token_changes_no_earlier_prediction(make):
    torch.manual_seed(0)
    model = make().eval()
    tokens = torch.randint(0, 17, (2, 12))
    changed = tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % 17
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :7], after[:, :7], rtol=0, atol=1e-6)
    assert (before[:, 7:] - after[:, 7:]).abs().amax(dim=(0, 2)).min() > 1e-7


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_shorter_sequences_give_the_same_prefix(make):
    torch.manual_seed(0)
    model = make().eval()
    tokens = torch.randint(0, 17, (2, 12))
    torch.testing.assert_close(model(tokens)[:, :5], model(tokens[:, :5]), rtol=0, atol=1e-5)


def test_rotary_products_depend_on_distance_only():
    cos, sin = rotary_table(10, 8, 10_000.0)
    torch.manual_seed(0)
    q, k = torch.randn(8).expand(10, 8), torch.randn(8).expand(10, 8)
    products = rotate(q, cos, sin) @ rotate(k, cos, sin).T
    for distance in range(-4, 5):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(rotate(q, cos, sin).norm(dim=-1), q.norm(dim=-1))


def test_the_first_loss_is_near_that_of_guessing():
    torch.manual_seed(0)
    model = Decoder(256, 64, 64, 2, 4, 192)
    tokens = torch.randint(0, 256, (8, 65))
    loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    assert loss.item() == pytest.approx(torch.tensor(256.0).log().item(), abs=0.5)


def test_a_width_without_even_heads_is_refused():
    with pytest.raises(ValueError, match="3 heads"):
        Decoder(17, 8, 16, 1, 3, 24)

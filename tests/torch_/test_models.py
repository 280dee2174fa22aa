"""The models of the recipes: sizes, causality, and agreement with independent implementations.

The references are torch, transformers and plain float64 loops.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from batchlab.torch_.models import Decoder, LadderLM, PostNormDecoder
from batchlab.torch_.models.decoder import Attention, Block, SwiGLU, rotary_table, rotate
from batchlab.torch_.models.ladder import ElmanRecurrence, GatedElman
from batchlab.torch_.models.post_norm import BiasedAttention, PostNormBlock


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


def test_a_width_without_even_heads_is_rejected():
    with pytest.raises(ValueError, match="3 heads"):
        Decoder(17, 8, 16, 1, 3, 24)


@pytest.fixture
def double_precision():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def causal(time):
    return nn.Transformer.generate_square_subsequent_mask(time)


def close(one, other, tolerance=1e-10):
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("double_precision")
def test_rotation_is_multiplication_by_a_complex_number():
    x = torch.randn(2, 7, 8)
    cos, sin = rotary_table(7, 8, 500.0)
    turns = torch.polar(
        torch.ones(7, 4), torch.arange(7.0)[:, None] * torch.tensor([500.0 ** (-i / 4) for i in range(4)])
    )
    turned = torch.complex(x[..., :4], x[..., 4:]) * turns
    close(rotate(x, cos, sin), torch.cat((turned.real, turned.imag), dim=-1))


@pytest.mark.usefixtures("double_precision")
def test_attention_without_positions_matches_torch():
    ours, theirs = Attention(24, 3), nn.MultiheadAttention(24, 3, bias=False, batch_first=True)
    theirs.in_proj_weight.data.copy_(ours.query_key_value.weight)
    theirs.out_proj.weight.data.copy_(ours.output.weight)
    x = torch.randn(2, 5, 24)
    still = torch.ones(5, 8), torch.zeros(5, 8)  # zero angles
    close(ours(x, *still), theirs(x, x, x, attn_mask=causal(5), need_weights=False)[0])


@pytest.mark.usefixtures("double_precision")
def test_attention_with_positions_scores_rotated_queries_and_keys():
    ours = Attention(24, 3)
    x = torch.randn(2, 5, 24)
    cos, sin = rotary_table(5, 8, 10_000.0)
    query, key, value = (part.unflatten(-1, (3, 8)).transpose(1, 2) for part in ours.query_key_value(x).chunk(3, -1))
    scores = rotate(query, cos, sin) @ rotate(key, cos, sin).mT / math.sqrt(8) + causal(5)
    close(ours(x, cos, sin), ours.output((scores.softmax(-1) @ value).transpose(1, 2).flatten(2)))


@pytest.mark.usefixtures("double_precision")
def test_swiglu_matches_its_formula():
    ours = SwiGLU(6, 10)
    x = torch.randn(4, 6)
    gate, up = ours.gate_up.weight.split(10)
    close(ours(x), ((x @ gate.T) * torch.sigmoid(x @ gate.T) * (x @ up.T)) @ ours.down.weight.T)


@pytest.mark.usefixtures("double_precision")
def test_the_norm_divides_by_the_root_of_the_mean_square():
    norm = Decoder(7, 4, 8, 1, 2, 8).norm
    nn.init.normal_(norm.weight)
    x = torch.randn(3, 8)
    root = torch.tensor([[math.sqrt(sum(v * v for v in row) / 8)] for row in x.tolist()])
    close(norm(x), x / root * norm.weight)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.slow  # importing transformers takes seconds
def test_the_decoder_matches_llama_of_transformers():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    ours = Decoder(31, 12, 32, 2, 4, 48, rope_theta=500.0)
    config = transformers.LlamaConfig(
        vocab_size=31,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        rms_norm_eps=torch.finfo(torch.float64).eps,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        tie_word_embeddings=False,
    )
    theirs = transformers.LlamaForCausalLM(config)
    weights: dict[str, torch.Tensor] = {
        "model.embed_tokens.weight": ours.embedding.weight,
        "model.norm.weight": ours.norm.weight,
    }
    weights["lm_head.weight"] = ours.head.weight
    for index, block in enumerate(ours.blocks):
        assert isinstance(block, Block)
        layer = f"model.layers.{index}"
        for name, part in zip("qkv", block.attention.query_key_value.weight.chunk(3), strict=True):
            weights[f"{layer}.self_attn.{name}_proj.weight"] = part
        gate, up = block.feed_forward.gate_up.weight.chunk(2)
        weights |= {
            f"{layer}.self_attn.o_proj.weight": block.attention.output.weight,
            f"{layer}.mlp.gate_proj.weight": gate,
            f"{layer}.mlp.up_proj.weight": up,
            f"{layer}.mlp.down_proj.weight": block.feed_forward.down.weight,
            f"{layer}.input_layernorm.weight": block.attention_norm.weight,
            f"{layer}.post_attention_layernorm.weight": block.feed_forward_norm.weight,
        }
    theirs.load_state_dict(weights, strict=True)
    tokens = torch.randint(0, 31, (2, 12))
    # Its rotary angles are always float32, which limits the agreement.
    close(ours(tokens), theirs.double()(tokens).logits, tolerance=1e-5)


@pytest.mark.usefixtures("double_precision")
def test_attention_with_biases_matches_torch():
    ours, theirs = BiasedAttention(24, 3), nn.MultiheadAttention(24, 3, batch_first=True)
    for bias in (ours.query_key_value.bias, ours.output.bias):
        nn.init.normal_(bias)
    theirs.in_proj_weight.data.copy_(ours.query_key_value.weight)
    theirs.in_proj_bias.data.copy_(ours.query_key_value.bias)
    theirs.out_proj.load_state_dict(ours.output.state_dict())
    x = torch.randn(2, 5, 24)
    close(ours(x), theirs(x, x, x, attn_mask=causal(5), need_weights=False)[0])


@pytest.mark.usefixtures("double_precision")
def test_a_post_norm_block_matches_the_encoder_layer_of_torch():
    ours = PostNormBlock(24, 3, dropout=0.1).eval()
    for parameter in ours.parameters():
        nn.init.normal_(parameter, std=0.3)
    theirs = nn.TransformerEncoderLayer(24, 3, dim_feedforward=96, batch_first=True).eval()
    theirs.load_state_dict(
        {
            "self_attn.in_proj_weight": ours.attention.query_key_value.weight,
            "self_attn.in_proj_bias": ours.attention.query_key_value.bias,
            **{f"self_attn.out_proj.{name}": value for name, value in ours.attention.output.state_dict().items()},
            **{f"linear1.{name}": value for name, value in ours.up.state_dict().items()},
            **{f"linear2.{name}": value for name, value in ours.down.state_dict().items()},
            **{f"norm1.{name}": value for name, value in ours.attention_norm.state_dict().items()},
            **{f"norm2.{name}": value for name, value in ours.feed_forward_norm.state_dict().items()},
        }
    )
    x = torch.randn(2, 5, 24)
    close(ours(x), theirs(x, src_mask=causal(5)))


@pytest.mark.usefixtures("double_precision")
def test_positions_are_the_published_sines():
    positions = PostNormDecoder(7, 6, 8, 1, 2).get_buffer("positions")
    for position in range(6):
        for i in range(4):
            angle = position / 10_000 ** (2 * i / 8)
            close(positions[position, 2 * i : 2 * i + 2], torch.tensor([math.sin(angle), math.cos(angle)]))


def stepwise(recurrence, x):
    """h_t = tanh(W_x x_t + W_h h_{t−1} + b), computed step by step."""
    hidden, states = torch.zeros(x.shape[0], x.shape[2]), []
    for t in range(x.shape[1]):
        hidden = torch.tanh(x[:, t] @ recurrence.weight_x.T + hidden @ recurrence.weight_h.T + recurrence.bias)
        states.append(hidden)
    return torch.stack(states, dim=1)


@pytest.mark.usefixtures("double_precision")
def test_the_recurrence_and_its_gradients_match_a_loop_over_time():
    recurrence = ElmanRecurrence(9)
    nn.init.normal_(recurrence.bias)
    x, direction = torch.randn(3, 20, 9, requires_grad=True), torch.randn(3, 20, 9)
    inputs = (x, recurrence.weight_x, recurrence.weight_h, recurrence.bias)
    ours, loop = recurrence(x), stepwise(recurrence, x)
    close(ours, loop)
    for one, other in zip(
        torch.autograd.grad((ours * direction).sum(), inputs),
        torch.autograd.grad((loop * direction).sum(), inputs),
        strict=True,
    ):
        close(one, other)


@pytest.mark.usefixtures("double_precision")
def test_the_second_bias_of_the_recurrence_is_no_parameter():
    recurrence = ElmanRecurrence(4)
    assert sorted(name for name, _ in recurrence.named_parameters()) == ["bias", "weight_h", "weight_x"]
    assert not recurrence.get_buffer("no_bias").any()


@pytest.mark.usefixtures("double_precision")
def test_a_gated_layer_matches_its_formula():
    layer = GatedElman(6)
    x = torch.randn(2, 5, 6)
    inputs, gate = (layer.norm(x) @ layer.in_proj.weight.T).split(6, dim=-1)
    hidden = stepwise(layer.recurrence, inputs * torch.sigmoid(inputs))
    close(layer(x), x + (hidden * gate * torch.sigmoid(gate)) @ layer.out_proj.weight.T)


@pytest.mark.usefixtures("double_precision")
def test_the_ladder_ties_its_embeddings_and_trains_them_at_both_ends():
    model = LadderLM(11, 8, 1)
    assert model.head.weight is model.embedding.weight
    model(torch.tensor([[3]])).sum().backward()
    assert model.embedding.weight.grad is not None
    assert (model.embedding.weight.grad.abs().sum(dim=1) > 0).all()  # every row as an output, row 3 also as an input


@pytest.mark.usefixtures("double_precision")
def test_under_autocast_the_recurrence_stays_in_bfloat16():
    torch.set_default_dtype(torch.float32)
    model = LadderLM(11, 8, 1)
    kinds = []
    layer = model.layers[0]
    assert isinstance(layer, GatedElman)
    layer.recurrence.register_forward_hook(lambda module, inputs, output: kinds.append(output.dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(torch.randint(0, 11, (2, 6))).float().sum().backward()
    assert kinds == [torch.bfloat16]
    assert layer.recurrence.weight_h.grad is not None
    assert layer.recurrence.weight_h.grad.dtype == torch.float32

"""The results page: published figures, predictions, and the arithmetic between them."""

from __future__ import annotations

import csv
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batchlab.analysis.capacity.memory import fit_line

GIB = 2**30
LENGTH, WIDTH, LAYERS = 512, 3584, 6
TRACED_LENGTH = 64
PARAMETERS = 386_340_864
COMMAND = "capacity elman --predict 48GiB"
CARD_GIB, LARGEST, FAILED = 47.4, 192, 208

KEPT_IN_BF16 = {
    "the residual stream, LayerNorm's input": 2,
    "LayerNorm's output, the input of in_proj": 2,
    "in_proj's output, x and gate": 4,
    "silu(x), the recurrence's input": 2,
    "h_t of every step, inside the recurrence": 2,
    "h, its output": 2,
    "silu(gate)": 2,
    "h · silu(gate), the input of out_proj": 2,
}
"""Bytes per token and unit of width that one layer keeps for its backward pass."""

STORIES = {128: "1.43 h", 256: "7.56 h", 512: "out of memory"}
STORY_CARD_GIB, STORY_ALLOCATED_GIB, STORY_REQUEST_MIB = 15.99, 28.49, 256


class Curve:
    """Peak bytes of a traced case: intercept and slope per token, from its smallest and largest size."""

    def __init__(self, points: Sequence[dict[str, Any]]) -> None:
        small, large = points[0], points[-1]
        tokens = (large["micro_batch_size"] - small["micro_batch_size"]) * TRACED_LENGTH
        self.per_token = (peak(large) - peak(small)) / tokens
        self.intercept = peak(large) - self.per_token * large["micro_batch_size"] * TRACED_LENGTH

    def at(self, batch: int) -> float:
        """Bytes at `batch` sequences of 512."""
        return self.intercept + self.per_token * batch * LENGTH

    @property
    def arrays(self) -> float:
        """Bytes per token and unit of width."""
        return self.per_token / WIDTH


def peak(point: dict[str, Any], phase: str = "") -> int:
    """Bytes of one phase, or of the largest."""
    return max(
        sum(count for name, count in one.items() if name != "phase")
        for one in point["phases"]
        if phase in ("", one["phase"])
    )


def page(found: dict[str, Any], published: Path | None) -> str:
    """results.md; `published` is the published table of E1, if it is available."""
    blocks = [
        "# Published memory tables, predicted without the cards: results",
        "    python benchmarks/capacity_prediction/run.py        # 2026-11-21",
        _machine(found["machine"]),
        *_elman(found, published),
        *_stories(found),
    ]
    return "\n\n".join(blocks) + "\n"


def _machine(machine: dict[str, str]) -> str:
    return (
        f"batchlab {machine['batchlab']}, {machine['framework']}, Python {machine['python']}; {machine['processor']} "
        f"({machine['instruction_set']}), 1 thread, Linux. Bytes are counted: n = 1 each.\n"
        "No CUDA card was available: every statement about one comes from a trace of the CPU's operations and the "
        "rules\nof the CUDA allocator."
    )


def _elman(found: dict[str, Any], published: Path | None) -> list[str]:
    curves = {name: Curve(points) for name, points in found.items() if name.startswith("E1")}
    title = "## E1, 386,340,864 parameters, 512 bytes per sequence"
    if published is None:
        return [title, "The published table is not available (../shared/data/elman_memory)."]
    with published.open() as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == "E1" and row["status"] == "ok"]
    measured = {int(row["batch_seqs"]): float(row["peak_gib"]) * GIB for row in rows}
    line = fit_line(sorted(measured.items()))
    assert line is not None
    theirs = line.slope / LENGTH / WIDTH
    as_run, with_adamw = curves["E1, bf16 weights, no optimizer"], curves["E1, bf16 weights, AdamW"]
    autocast, bare = curves["E1, bf16 autocast, AdamW"], curves["E1, bf16 autocast, no optimizer"]
    return [
        title,
        *_answers(found),
        _table(
            ("", "GiB at batch 0", "GiB per sequence", "bytes per token and unit of width"),
            [
                ("published, least squares over nine batches", *_line(line.intercept, theirs)),
                *((name, *_line(curve.intercept, curve.arrays)) for name, curve in curves.items()),
            ],
        ),
        _table(
            ("batch", "published GiB", "bf16 weights, no optimizer", "error", "+ AdamW", "as the recipe trains"),
            [
                (
                    f"{batch}",
                    f"{held / GIB:.2f}",
                    f"{as_run.at(batch) / GIB:.2f}",
                    f"{100 * (as_run.at(batch) / held - 1):+.1f} %",
                    f"{with_adamw.at(batch) / GIB:.2f}",
                    f"{autocast.at(batch) / GIB:.2f}",
                )
                for batch, held in measured.items()
            ],
        ),
        "### Where the differences come from",
        _bullets(_intercepts(line.intercept, as_run, with_adamw, bare, autocast)),
        _bullets(_slopes(found, theirs, as_run, bare)),
        _bullets(_verdict(line.intercept + line.slope * LARGEST, line.intercept + line.slope * FAILED)),
    ]


def _answers(found: dict[str, Any]) -> list[str]:
    """The command's answers: over short sequences and, if that was run, over the recipe's sequences."""
    short = found[f"{COMMAND} --set sequence_length={TRACED_LENGTH}"]
    ratio = LENGTH // TRACED_LENGTH
    texts = [
        f"    batchlab {COMMAND} --set sequence_length={TRACED_LENGTH}",
        _fill(
            f"bf16 autocast over fp32 weights with AdamW, as the recipe trains: {_answer(short)}. {ratio} of these "
            f"sequences make one of {LENGTH}: **{short['max_micro_batch_size'] // ratio}**."
        ),
    ]
    whole = found.get(COMMAND)
    if whole is None:
        texts.append(f"`batchlab {COMMAND}` itself, over {LENGTH} bytes, was not run to the end for this page.")
    else:
        texts += [f"    batchlab {COMMAND}", _fill(f"**{whole['max_micro_batch_size']}**: {_answer(whole)}.")]
    return [*texts, "Published: 192, bf16 weights, no optimizer, peak allocated, on a card of 47.4 GiB."]


def _answer(answer: dict[str, Any]) -> str:
    line = answer["line"]
    return (
        f"{answer['max_micro_batch_size']:,} sequences within {answer['limit_bytes'] / GIB:.0f} GiB, 5 % left free "
        f"({answer['status']}), following {line['intercept'] / GIB:.2f} GiB + {line['slope'] / 2**20:.1f} MiB per "
        f"sequence (R² {line['r_squared']:.5f}, n = {line['n']} traced sizes, reserved bytes)"
    )


def _intercepts(published: float, as_run: Curve, with_adamw: Curve, bare: Curve, autocast: Curve) -> list[str]:
    weights = PARAMETERS * 2
    unexplained = published - as_run.intercept
    return [
        f"Batch 0 of our model, run as published, is weights and gradients of two bytes: 2 × {weights / GIB:.3f} = "
        f"{2 * weights / GIB:.3f} GiB. The trace gives {as_run.intercept / GIB:.3f}. The published intercept is "
        f"{unexplained / GIB:.3f} GiB higher, as much as {unexplained / (2 * WIDTH**2):.1f} matrices of width² in "
        "bf16. The published kernel is not available, so their source is unknown; no optimizer state is among them.",
        f"AdamW on bf16 weights keeps two more copies of that size: {with_adamw.intercept / GIB:.3f} GiB, "
        f"+{(with_adamw.intercept - as_run.intercept) / GIB:.3f}.",
        f"Under autocast, fp32 weights and gradients are 2 × {2 * weights / GIB:.3f} GiB, and each layer's weights "
        f"are also held in bf16 while autograd needs them, {weights / GIB:.3f} GiB: {bare.intercept / GIB:.3f} "
        f"traced. AdamW in fp32 adds {(autocast.intercept - bare.intercept) / GIB:.3f}.",
    ]


def _slopes(found: dict[str, Any], theirs: float, as_run: Curve, bare: Curve) -> list[str]:
    layer = (as_run.arrays - Curve(found["one layer, bf16 weights"]).arrays) / (LAYERS - 1)
    autocast_layer = (bare.arrays - Curve(found["one layer, bf16 autocast"]).arrays) / (LAYERS - 1)
    counted = sum(KEPT_IN_BF16.values())
    return [
        f"One layer of our model keeps, in bytes per token and unit of width: "
        f"{'; '.join(f'{name} {size}' for name, size in KEPT_IN_BF16.items())}. That is {counted} in all. The trace "
        f"of six layers minus that of one gives {layer:.2f} per layer; the rest is LayerNorm's statistics.",
        f"Six layers are {LAYERS * layer:.1f} of {as_run.arrays:.1f}. The last LayerNorm, the logits and the gradients "
        f"at the peak are the other {as_run.arrays - LAYERS * layer:.1f}. The published slope is {theirs:.1f}: "
        f"{theirs - as_run.arrays:.1f} or {100 * (theirs / as_run.arrays - 1):.1f} % more, which is less than half an "
        "array of two bytes per layer. The table has one model only, so it does not show where this comes from.",
        f"Under autocast a layer keeps {autocast_layer:.2f}: the residual stream is fp32, two bytes more.",
    ]


def _verdict(at_largest: float, at_failed: float) -> list[str]:
    adamw = 2 * PARAMETERS
    return [
        f"208 ran out of memory, where the published line is at {at_failed / GIB:.2f} GiB. So at least "
        f"{CARD_GIB - at_failed / GIB:.2f} GiB of the card are in none of its figures (context, workspaces, "
        "fragmentation).",
        f"192 without an optimizer needs {at_largest / GIB:.2f} GiB. With AdamW it would need "
        f"{(at_largest + 2 * adamw) / GIB:.2f} (state in bf16) or {(at_largest + 4 * adamw) / GIB:.2f} (in fp32), the "
        f"latter {(at_failed - at_largest - 4 * adamw) / GIB:.2f} GiB below what failed. So 192 was not shown to fit "
        "for training, and 193 to 207 were not tried.",
    ]


def _stories(found: dict[str, Any]) -> list[str]:
    answer = found["capacity tinystories --predict 16GiB"]
    points = {point["micro_batch_size"]: point for point in found["TinyStories"]}
    forward = peak(points[512], "forward") / GIB
    over = points[256]["reserved_bytes"] / GIB
    request = 512 * 256 * 512 * 4 / 2**20
    return [
        "## TinyStories, 22,696,448 parameters, 256 tokens per sequence",
        "    batchlab capacity tinystories --predict 16GiB",
        _fill(
            f"fp32, two micro-batches per step: **{answer['max_micro_batch_size']}**: {_answer(answer)}. The table is "
            "with no gradient accumulation."
        ),
        _table(
            ("batch", "published, 15.99 GiB", "forward GiB", "backward GiB", "reserved GiB"),
            [
                (
                    f"{size}",
                    STORIES[size],
                    f"{peak(point, 'forward') / GIB:.2f}",
                    f"{peak(point, 'backward') / GIB:.2f}",
                    f"{point['reserved_bytes'] / GIB:.2f}",
                )
                for size, point in points.items()
            ],
        ),
        _bullets(
            [
                f"128 fits. 256 needs {over:.1f} GiB, {over - STORY_CARD_GIB:.1f} more than the card has. It ran "
                "because the driver moved the rest to host memory, and took five times as long as 128 instead of a "
                "little less time. The source attributes that to compilation.",
                f"The error at 512 asked for {STORY_REQUEST_MIB} MiB, which is exactly one activation: 512 × 256 × "
                f"512 numbers of four bytes ({request:.0f} MiB). {STORY_ALLOCATED_GIB} GiB were already allocated on a "
                f"card of {STORY_CARD_GIB}, so it was using host memory before it failed, on its way to the "
                f"{forward:.1f} GiB of the forward pass.",
                "So the largest batch of that card was not 256. What else the published run used (attention without "
                "a fused kernel, compilation) is unknown and not in these figures.",
            ]
        ),
    ]


def _line(intercept: float, arrays: float) -> tuple[str, str, str]:
    return f"{intercept / GIB:.3f}", f"{arrays * LENGTH * WIDTH / GIB:.5f}", f"{arrays:.2f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _bullets(texts: Sequence[str]) -> str:
    return "\n".join(_fill(text, "- ") for text in texts)


def _fill(text: str, bullet: str = "") -> str:
    return textwrap.fill(text, 120, initial_indent=bullet, subsequent_indent=" " * len(bullet), break_on_hyphens=False)

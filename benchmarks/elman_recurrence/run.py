"""How fast is the Elman recurrence as one kernel, as a loop over time, as a compiled loop, and as a compiled scan?

    python benchmarks/elman_recurrence/run.py [--out results.md]

h_t = tanh(W_x x_t + W_h h_{t−1} + b), forward and backward. All four compute W_x x_t for every t in one product and
must agree with the kernel; only the steps over time differ. They run in turns, n times; milliseconds of a forward and
backward pass are medians. A scan that combines steps in a tree (associative scan) does not apply: tanh of a sum is not
associative, and a recurrence that is linear in h would be another model. Compilation unrolls the loop, with one copy of
the step per position. It takes tens of seconds per shape and is not in the figures.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan

import batchlab
from batchlab.torch_.models.ladder import ElmanRecurrence

SHAPES = ((16, 64, 64), (4, 64, 1024))  # batch, time, width
REPEATS = 7
LEAST_SECONDS = 0.25
TOLERANCE = 1e-4

Steps = Callable[[ElmanRecurrence, Tensor], Tensor]


def kernel(recurrence: ElmanRecurrence, x: Tensor) -> Tensor:
    """torch's own loop over time, in C++."""
    hidden: Tensor = recurrence(x)
    return hidden


def loop(recurrence: ElmanRecurrence, x: Tensor) -> Tensor:
    """One step after the other, from Python."""
    inputs = torch.nn.functional.linear(x, recurrence.weight_x, recurrence.bias)
    hidden, states = x.new_zeros(x.shape[0], x.shape[2]), []
    for t in range(x.shape[1]):
        hidden = torch.tanh(torch.addmm(inputs[:, t], hidden, recurrence.weight_h.T))
        states.append(hidden)
    return torch.stack(states, dim=1)


def scanned(recurrence: ElmanRecurrence, x: Tensor) -> Tensor:
    """torch's higher-order scan; its body is traced once."""
    inputs = torch.nn.functional.linear(x, recurrence.weight_x, recurrence.bias).transpose(0, 1).contiguous()
    weight = recurrence.weight_h.T.contiguous()

    def step(hidden: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.tanh(part + hidden @ weight)
        return state, state.clone()

    _, states = scan(step, x.new_zeros(x.shape[0], x.shape[2]), inputs, dim=0)
    return states.transpose(0, 1)


@dataclass
class Variant:
    name: str
    run: Steps
    failure: str = ""


def variants() -> list[Variant]:
    """In the order of the table; compiled variants are compiled afresh for each shape."""
    torch._dynamo.reset()
    return [
        Variant("kernel (torch.rnn_tanh)", kernel),
        Variant("Python loop", loop),
        Variant("Python loop, compiled", torch.compile(loop)),
        Variant("scan, compiled", torch.compile(scanned)),
    ]


def pass_once(variant: Variant, recurrence: ElmanRecurrence, x: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
    """(states, gradient of W_h) of one forward and backward."""
    recurrence.zero_grad(set_to_none=True)
    states = variant.run(recurrence, x)
    (states * direction).sum().backward()
    assert recurrence.weight_h.grad is not None
    return states.detach(), recurrence.weight_h.grad


def start(variant: Variant, expected: tuple[Tensor, Tensor] | None, arguments: tuple) -> tuple[Tensor, Tensor] | None:
    """The first pass, which compiles. A variant that fails or disagrees is marked and not timed."""
    try:
        result = pass_once(variant, *arguments)
    except Exception as error:  # noqa: BLE001 (any error of the compiler is reported in the table)
        said = [line for line in str(error).splitlines() if "Error: " in line] or [type(error).__name__]
        variant.failure = f"fails in torch: {said[0][:90]}"
        return None
    for one, other in zip(result, expected or result, strict=True):
        if not torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE):
            variant.failure = f"differs from the kernel by {float((one - other).abs().max()):.2g}"
    return result


def measure(shape: tuple[int, int, int]) -> list[tuple[Variant, list[float]]]:
    """Seconds per forward and backward, per variant, over the repeats."""
    torch.manual_seed(0)
    batch, steps, width = shape
    recurrence = ElmanRecurrence(width)
    arguments = recurrence, torch.randn(batch, steps, width), torch.randn(batch, steps, width)
    made, expected = variants(), None
    for variant in made:
        result = start(variant, expected, arguments)
        expected = expected or result
    seconds: dict[str, list[float]] = {variant.name: [] for variant in made}
    for _ in range(REPEATS):
        for variant in made:
            if not variant.failure:
                seconds[variant.name].append(block(variant, arguments))
    return [(variant, seconds[variant.name]) for variant in made]


def block(variant: Variant, arguments: tuple) -> float:
    """Mean seconds of one pass over a block of at least LEAST_SECONDS."""
    begun, passes = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - begun) < LEAST_SECONDS:
        pass_once(variant, *arguments)
        passes += 1
    return elapsed / passes


def table() -> str:
    lines = [
        "| batch × time × width | recurrence | ms per pass | min … max | speed ÷ speed of the loop |",
        "|---|---|---|---|---|",
    ]
    for shape in SHAPES:
        measured = measure(shape)
        of_loop = statistics.median(next(times for variant, times in measured if variant.name == "Python loop"))
        for variant, times in measured:
            name = f"| {' × '.join(map(str, shape))} | {variant.name} |"
            if variant.failure:
                lines.append(f"{name} – | – | {variant.failure} |")
                continue
            middle = statistics.median(times)
            lines.append(
                f"{name} {1e3 * middle:.2f} | {1e3 * min(times):.2f} … {1e3 * max(times):.2f} | "
                f"{of_loop / middle:.2f} × |"
            )
        print(f"{shape} done", flush=True)
    return "\n".join(lines)


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="also write the page to this file")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    page = (
        "# The Elman recurrence: results\n\n    python benchmarks/elman_recurrence/run.py\n\n"
        f"batchlab {batchlab.__version__}, torch {torch.__version__}, Python {platform.python_version()}; "
        f"{processor()},\n"
        f"1 thread, float32; n = {REPEATS} blocks of at least {LEAST_SECONDS} s each, in turns; median.\n"
        "All variants agree with the kernel in states and in the gradient of W_h.\n\n"
        f"{table()}\n"
    )
    print(page)
    if out is not None:
        out.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()

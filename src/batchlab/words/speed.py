"""How well a device is used: MFU, launch-bound steps, and what precision and compilation gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from batchlab.analysis.sweep.speed_variants import WORTHWHILE, SpeedVariant
from batchlab.analysis.values import ThroughputPoint
from batchlab.core.batch import BatchLayout, Unit
from batchlab.core.format import format_layout, format_list, format_percent, format_throughput

TERA = 1e12


def describe_mfu(point: ThroughputPoint) -> str:
    """`41 % MFU: 12.3 of 30.1 TFLOP/s measured here (data sheet: 65)`, or that it is not known."""
    if point.mfu is None or point.achieved_flops is None or point.peak_flops is None:
        return "MFU unknown"
    sheet = "" if point.datasheet_flops is None else f" (data sheet: {_tera(point.datasheet_flops)})"
    achieved, peak = _tera(point.achieved_flops), _tera(point.peak_flops)
    return f"{format_percent(point.mfu)} MFU: {achieved} of {peak} TFLOP/s measured here{sheet}"


def launch_bound(sizes: Sequence[int]) -> str:
    """What a launch-bound step means for who measures it."""
    return (
        f"batch {format_list(sizes)} is launch-bound: its speed is that of Python and of launching kernels, so try a "
        "larger micro-batch or device.compile=reduce-overhead"
    )


def variant_lines(variants: Sequence[SpeedVariant], layout: BatchLayout, unit: Unit) -> list[str]:
    """The speed variants as a table, then what to do."""
    if not variants:
        return ["variants: this device has none that the study does not use already"]
    width = max(len(variant.name) for variant in variants)
    return [
        f"variants, one at a time, for {format_layout(layout, unit)}",
        *(f"   {variant.name:<{width}}  {_variant(variant, unit)}" for variant in variants),
        f"   {advice(variants)}",
    ]


def _variant(variant: SpeedVariant, unit: Unit) -> str:
    if variant.tokens_per_second is None or variant.gain is None:
        return f"cannot be measured here: {_first_sentence(variant.why_not)}"
    measured = format_throughput(variant.tokens_per_second, unit)
    expected = "no rule" if variant.expected is None else format_throughput(variant.expected, unit)
    sign = "+" if variant.gain >= 0 else ""
    bound = "; launch-bound" if variant.launch_bound else ""
    return f"expected {expected}, measured {measured} ({sign}{format_percent(variant.gain)}){bound}"


def advice(variants: Sequence[SpeedVariant]) -> str:
    """The fastest variant with its options, if any is worth the change."""
    faster = [variant for variant in variants if variant.faster]
    if not faster:
        return f"advice: none of them is {format_percent(WORTHWHILE)} faster in every block, so change nothing"
    best = max(faster, key=lambda variant: variant.gain or 0.0)
    text = f"advice: {_options(best.settings)} ({format_percent(best.gain or 0.0)} more tokens per second)"
    if best.launch_bound:
        text += "; its steps are launch-bound, so a larger micro-batch may gain more"
    if "precision" in best.settings:
        text += "; another precision changes losses a little, so use it for the whole study"
    return text


def _first_sentence(text: str) -> str:
    """Compilers add instructions to their errors; the record has them all."""
    return text.partition(". ")[0].rstrip(".")


def _options(settings: Mapping[str, str]) -> str:
    return " ".join(f"--set device.{name}={value}" for name, value in settings.items())


def _tera(flops: float) -> str:
    return f"{flops / TERA:.3g}"

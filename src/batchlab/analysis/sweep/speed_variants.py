"""What another precision or a compiled model would gain: what is expected, beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from batchlab.storage.decisions import SpeedVariantDecision

WORTHWHILE = 0.05
"""A variant is advised from this gain on."""


@dataclass(frozen=True, slots=True)
class SpeedVariant:
    """One variant at the study's batch size. `expected` is None where no rule says what to expect."""

    name: str
    settings: Mapping[str, str]  # of the device, that differ from the study's
    tokens_per_second: float | None = None
    expected: float | None = None
    gain: float | None = None  # measured, relative to the study as it is
    faster: bool = False  # every block was faster than the study's fastest, and the gain is worthwhile
    launch_bound: bool = False
    why_not: str = ""


def speed_variants(
    as_it_is: SpeedVariantDecision,
    measured: Mapping[str, SpeedVariantDecision],
    settings: Mapping[str, Mapping[str, str]],
) -> tuple[SpeedVariant, ...]:
    """Every variant against the study as it is."""
    return tuple(_variant(name, as_it_is, found, settings[name]) for name, found in measured.items())


def _variant(
    name: str, own: SpeedVariantDecision, found: SpeedVariantDecision, settings: Mapping[str, str]
) -> SpeedVariant:
    if found.tokens_per_second is None or own.tokens_per_second is None:
        return SpeedVariant(name, settings, why_not=found.why_not)
    gain = found.tokens_per_second / own.tokens_per_second - 1
    clear = (found.lowest or 0.0) > (own.highest or 0.0)
    return SpeedVariant(
        name,
        settings,
        tokens_per_second=found.tokens_per_second,
        expected=None if "compile" in settings else expected_speed(own, found.peak_flops),
        gain=gain,
        faster=clear and gain >= WORTHWHILE,
        launch_bound=found.launch_bound,
    )


def expected_speed(own: SpeedVariantDecision, peak_flops: float | None) -> float | None:
    """Tokens per second if matrix products alone became as much faster as the measured peaks differ.

    A token takes t seconds, of which f/p at least go into its f operations at the peak p; with another peak p′ it takes
    t − f/p + f/p′. Operations that move memory become faster too where values have half the bytes, and products run
    below the peak, so the truth may lie on either side.
    """
    if not (own.tokens_per_second and own.flops_per_token and own.peak_flops and peak_flops):
        return None
    seconds, products = 1 / own.tokens_per_second, own.flops_per_token / own.peak_flops
    return 1 / (max(0.0, seconds - products) + products * own.peak_flops / peak_flops)

"""The line of `batchlab.observe`."""

from __future__ import annotations

from typing import Any

from batchlab.analysis.critical.noise_scale import GradientNorms, noise_scale
from batchlab.core.record import NoGradientSamples
from batchlab.words.observation import no_sampled_step, observation_line


def test_a_measured_noise_scale_has_its_interval_and_what_was_left_out() -> None:
    found = noise_scale([GradientNorms((4.0, 4.0), (2.0, 2.0), 2.0)] * 8)
    text = observation_line(found, None, 2000.0, 2**30)
    assert text == "noise scale 0 [0, 0], n = 8 sampled steps · 2,000 tokens/s · peak 1.00 GiB"


def test_without_a_sample_it_says_why() -> None:
    nothing: dict[str, Any] = {"unmeasurable": None, "single": 0, "stale": 0, "steps": 3, "every": 25}
    assert no_sampled_step(**nothing) == "no step was sampled in 3 steps; one in 25 is"
    assert "accumulate over at least 2" in no_sampled_step(**{**nothing, "single": 3})
    assert "zero_grad()" in no_sampled_step(**{**nothing, "stale": 1})
    assert "sparse=False" in no_sampled_step(**{**nothing, "unmeasurable": NoGradientSamples.SPARSE})
    assert "unknown (why)" in observation_line(noise_scale([]), None, None, None, missing="why")


def test_a_loop_that_computed_nothing() -> None:
    text = observation_line(noise_scale([]), None, None, None, missing="why", uncomputed=5)
    assert text.splitlines()[1] == (
        "The loop went on for at least 5 steps without computing the model's parameters, so memory grew and tokens/s "
        "counts work that was not done: call mx.eval(model.parameters(), optimizer.state) after every update."
    )

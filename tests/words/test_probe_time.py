from __future__ import annotations

from batchlab.search.probe_time import ProbeTime, Seconds, measured_probe_time
from batchlab.words.probe_time import describe_prediction, describe_remaining_probe, describe_search

ASSUMED = ProbeTime(Seconds(0.5, 20.0), Seconds(2e9, 8e10))


def test_before_anything_is_known_a_range_stands_beside_what_it_assumes() -> None:
    text = describe_search(ASSUMED, 2, runs=True, spares_time=True)
    assert text.startswith("traces, which run nothing, then usually 2 to 4 probes of 3 whole steps")
    assert "about 3 s to 2 min 08 s per sample of a probe" in text
    assert "6 × parameters × tokens, at an assumed 2 to 80 gigaFLOP/s" in text
    assert "--verify-largest" in text
    assert "--verify-largest" not in describe_search(ASSUMED, 2, runs=True, spares_time=False)


def test_quick_samples_are_told_by_the_thousand() -> None:
    quick = ProbeTime(Seconds(1e-4, 4e-3), Seconds(2e9, 8e10))
    assert "about 0.64 s to 26 s per 1,000 samples of a probe" in describe_search(quick, 2, runs=True, spares_time=True)


def test_without_an_estimate_it_says_when_there_will_be_one() -> None:
    assert "known after the first one" in describe_search(None, 2, runs=True, spares_time=False)
    assert "probe" not in describe_search(None, 2, runs=False, spares_time=False)


def test_the_prediction_says_how_long_it_takes_to_run() -> None:
    plain = describe_prediction(890, 200 * 2**20, None, 2)
    assert plain == "the trace predicts micro-batch 890 within 0.20 GiB; now it is run"
    timed = describe_prediction(10, 2**30, ASSUMED, 1)
    assert timed.startswith("the trace predicts micro-batch 10 within 1.00 GiB; now it is run: about 23 s to ")
    assert "assumed" in timed


def test_after_a_probe_ran_the_time_is_measured() -> None:
    text = describe_remaining_probe(100, measured_probe_time(0.01), 2)
    assert text == "a probe of micro-batch 100 takes about 6 s (as measured)"

"""Names of parts are grouped by block, by module, and thinned to three."""

from __future__ import annotations

from batchlab.core.parameter_groups import by_block, by_module, first_middle_last


def test_parameters_of_a_block_and_others() -> None:
    names = ["embedding.weight", "blocks.1.a.weight", "blocks.1.a.bias", "blocks.10.a.weight", "head.weight", "scale"]
    assert by_block(names, ["blocks.1", "blocks.10"]) == {
        "embedding": ["embedding.weight"],
        "blocks.1": ["blocks.1.a.weight", "blocks.1.a.bias"],
        "blocks.10": ["blocks.10.a.weight"],
        "head": ["head.weight"],
        "scale": ["scale"],
    }


def test_parameters_of_a_module() -> None:
    assert by_module(["a.b.weight", "a.b.bias", "a.c.weight", "scale"]) == {
        "a.b": ["a.b.weight", "a.b.bias"],
        "a.c": ["a.c.weight"],
        "scale": ["scale"],
    }


def test_first_middle_last() -> None:
    assert first_middle_last([]) == ()
    assert first_middle_last(["a"]) == ("a",)
    assert first_middle_last(["a", "b"]) == ("a", "b")
    assert first_middle_last(list("abcd")) == ("a", "b", "d")

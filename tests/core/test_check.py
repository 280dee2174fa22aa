"""Findings of a check go through a record's JSON unchanged, also losses that are not finite."""

from __future__ import annotations

import math

from batchlab.core.check import CheckItem, CheckResult, HalvesLoss, RaisedError, ReductionFinding, StartLoss
from batchlab.core.record import RECORD, Outcome, Record


def test_findings_keep_their_kind_in_json() -> None:
    losses = HalvesLoss(samples=8, whole=math.nan, first=math.inf, second=1.0)
    result = CheckResult(
        items=(
            CheckItem(name="loss", status="fail", finding=StartLoss(found="not_finite", loss=math.nan)),
            CheckItem(name="mean or sum", status="note", finding=ReductionFinding(found="not_finite", losses=losses)),
            CheckItem(name="seeds", status="note", finding=RaisedError(message="KeyError", same_as="loss")),
        )
    )
    record = Record(run_id="check-1", outcome=Outcome.COMPLETED, result=result)
    again = RECORD.validate_json(RECORD.dump_json(record))
    assert isinstance(again.result, CheckResult)
    assert repr(again.result) == repr(result)
    assert not again.result.passed

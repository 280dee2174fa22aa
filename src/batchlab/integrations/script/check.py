"""Is a command's use of its placeholders sound? A few short runs that differ in one value each are compared.

A value that changes nothing is an option that the script ignores. Two equal runs that differ mean that the script is
not seeded, so nothing can be said about values that seem to work.
"""

from __future__ import annotations

from batchlab.core.batch import BatchLayout
from batchlab.core.check import CheckItem, CheckResult, PlaceholderFinding, Status
from batchlab.core.protocols import RunResult
from batchlab.core.record import Outcome
from batchlab.core.spec import CheckSpec
from batchlab.integrations.script.attempt import Attempt, Execution, Filling, judged
from batchlab.integrations.script.template import BATCH, by_time, template_of

STEPS = 8
SMALL = 2
"""Samples of the smaller batch per device; the larger has twice as many."""

RATE, OTHER_RATE = 1e-3, 1e-2

SAME_MEMORY = 0.02
"""Peaks of two equal runs of a process differ by less than this share."""


def check(execution: Execution, spec: CheckSpec) -> RunResult:
    """Compare short runs. The first that fails, or gives no validation loss, is the result."""
    command = execution.command
    template = template_of(command)
    small = SMALL * command.devices
    length = spec.workload.sequence_length

    def filling(batch: int, micro: int, rate: float = RATE, seed: int = 0) -> Filling:
        layout = BatchLayout(global_batch_size=batch, micro_batch_size=micro, sequence_length=length)
        tokens = STEPS * layout.tokens_per_step
        if template.has("epochs"):
            tokens = (command.train_samples or 1) * length
        return Filling(layout, rate, STEPS, tokens, seed=seed, warmup_steps=1)

    wanted: list[tuple[str, Filling]] = [
        ("again", filling(small, small)),
        ("batch", filling(2 * small, 2 * small)),
    ]
    if template.has("grad_accum_steps"):
        wanted.append(("accumulation", filling(2 * small, small)))
    if template.has("learning_rate"):
        wanted.append(("learning_rate", filling(small, small, rate=OTHER_RATE)))
    if template.has("seed"):
        wanted.append(("seed", filling(small, small, seed=1)))

    found: dict[str, Attempt] = {}
    for name, values in [("first", filling(small, small)), *wanted]:
        attempt = execution.attempt(values, "check")
        outcome, reason = judged(attempt, command)
        diverged_at_other_rate = name == "learning_rate" and outcome is Outcome.DIVERGED
        if outcome is not Outcome.COMPLETED and not diverged_at_other_rate:
            return RunResult(outcome, reason, None, environment=attempt.environment)
        found[name] = attempt
    first = found["first"]
    repeats = losses(first) == losses(found["again"])
    items = [_timed(first) if by_time(template) else _repeatable(first, repeats, seeded=template.has("seed"))]
    names = {
        "batch": "{" + next(iter(sorted(template.names & BATCH))) + "}",
        "accumulation": "{grad_accum_steps}",
        "learning_rate": "{learning_rate}",
        "seed": "{seed}",
    }
    for name, placeholder in names.items():
        if name in found:
            items.append(_used(placeholder, first, found[name], repeats))
    result = CheckResult(items=tuple(items), repeatable=repeats and template.has("seed") and not by_time(template))
    return RunResult(Outcome.COMPLETED, "", result, environment=first.environment)


def losses(attempt: Attempt) -> tuple[object, ...]:
    """Every loss that a run gave, in order; NaN equals itself here."""
    return tuple((row.step, repr(row.train_loss), repr(row.val_loss)) for row in attempt.rows)


def _repeatable(first: Attempt, repeats: bool, *, seeded: bool) -> CheckItem:
    status: Status = "ok" if repeats and seeded else "note"
    finding = PlaceholderFinding(
        found="repeats" if repeats else "differs",
        placeholder="{seed}" if seeded else "",
        loss=first.val_loss,
        steps=STEPS,
    )
    return CheckItem(name="equal runs", status=status, finding=finding)


def _timed(first: Attempt) -> CheckItem:
    finding = PlaceholderFinding(found="timed", placeholder="{seconds}", loss=first.val_loss, steps=STEPS)
    return CheckItem(name="equal runs", status="note", finding=finding)


def _used(placeholder: str, one: Attempt, other: Attempt, repeats: bool) -> CheckItem:
    """Whether a value changed what a run did."""
    same = losses(one) == losses(other)
    if same and _same_memory(one, other):
        status: Status = "fail"
        finding = PlaceholderFinding(found="ignored", placeholder=placeholder, loss=one.val_loss, steps=STEPS)
    elif same:
        status = "fail"
        finding = PlaceholderFinding(found="untrained_loss", placeholder=placeholder, loss=one.val_loss, steps=STEPS)
    elif not repeats:
        status = "note"
        finding = PlaceholderFinding(found="unknown", placeholder=placeholder, loss=other.val_loss, steps=STEPS)
    else:
        status = "ok"
        finding = PlaceholderFinding(found="used", placeholder=placeholder, loss=other.val_loss, steps=STEPS)
    return CheckItem(name=placeholder, status=status, finding=finding)


def _same_memory(one: Attempt, other: Attempt) -> bool:
    first, second = one.peak_bytes, other.peak_bytes
    if first is None or second is None:
        return True
    return abs(first - second) <= SAME_MEMORY * max(first, second)

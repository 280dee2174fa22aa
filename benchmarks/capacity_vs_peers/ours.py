"""batchlab's answer: the real command, and its cost read from the study's folder."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OURS = ("batchlab", "batchlab --prove")


def ask_batchlab(workload: Path, limit: int, tool: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Run `batchlab capacity` on a task file in a new study; without headroom, as the other tools leave none."""
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder) / "study"
        command = [sys.executable, "-m", "batchlab", "capacity", str(workload), "--memory-limit", str(limit)]
        command += ["--headroom", "0", "--set", "batch.micro_batching=off", "--set", "device.threads=1"]
        command += ["--out", str(study), *(["--prove"] if "--prove" in tool else [])]
        done = subprocess.run(command, capture_output=True, text=True, env=dict(environment), check=False)
        if not (study / "decisions.json").exists():
            return {"found": None, "trials": 0, "out_of_memory": 0, "steps": 0, "error": done.stderr[-500:]}
        decided = json.loads((study / "decisions.json").read_text()).get("capacity", {})
        probes = read_probes(study)
    return {
        "found": decided.get("max_micro_batch_size"),
        "trials": len(probes),
        "out_of_memory": sum(probe["outcome"] == "out_of_memory" for probe in probes),
        "steps": sum(probe["steps"] for probe in probes),
        "sizes": [probe["size"] for probe in probes],
        "error": "" if decided else done.stderr[-500:],
    }


def sources() -> str:
    """The current commit of this working tree."""
    command = ["git", "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True).stdout.strip()


def read_probes(study: Path) -> list[dict[str, Any]]:
    """Every size that batchlab ran, in no order."""
    return [_read(run) for run in sorted(study.glob("runs/capacity-*"))]


def _read(run: Path) -> dict[str, Any]:
    spec, record = (json.loads((run / name).read_text()) for name in ("spec.json", "record.json"))
    result = record["result"] or {}
    return {
        "size": spec["micro_batch_size"],
        "outcome": record["outcome"],
        "baseline": result.get("baseline_bytes"),
        "steps": result.get("steps", 0) * spec["grad_accum_steps"],
    }

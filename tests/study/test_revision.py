"""The commit of the user's code, from a real repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from batchlab.study.revision import revision_of


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_repository_has_a_commit_a_branch_and_maybe_changes(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert revision_of(tmp_path) is None  # nothing was committed yet
    (tmp_path / "mine.py").write_text("a = 1\n")
    git(tmp_path, "add", "mine.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    clean = revision_of(tmp_path)
    assert clean is not None
    assert git(tmp_path, "rev-parse", "HEAD").startswith(clean.commit)
    assert (clean.branch, clean.changed) == ("main", False)
    (tmp_path / "mine.py").write_text("a = 2\n")
    changed = revision_of(tmp_path)
    assert changed is not None
    assert changed.changed


def test_no_repository_and_no_git_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert revision_of(tmp_path) is None
    monkeypatch.setenv("PATH", "")
    assert revision_of(tmp_path) is None

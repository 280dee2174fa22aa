# Everything is pip into .venv, at the versions in constraints.txt. PYTHON=python3.12 make … picks another interpreter.
PYTHON ?= python3
BIN := .venv/bin
PIP := PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet

.PHONY: quickstart test check format chaos bench clean setup setup-dev browser

quickstart: setup
	$(BIN)/batchlab study quickstart

# torch first and by itself: anything else that asks for it would pull whatever build is newest.
.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) "torch==$$(sed -n 's/^torch==//p' constraints.txt)"
	$(PIP) --editable '.[torch]'
	touch $@

.venv/.ready-dev: .venv/.ready
	$(PIP) --editable '.[torch,dev]'
	touch $@

setup: .venv/.ready

setup-dev: .venv/.ready-dev

# The browser test needs Debian's chromium; where it cannot be installed the test says why it was skipped (CI: fails).
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } \
		|| echo "chromium is not installed and cannot be from here: the browser test will be skipped"

# The quick subset, while working (≤ 5 min).
check: setup-dev
	$(BIN)/ruff format --check src tests examples benchmarks
	$(BIN)/ruff check src tests examples benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto -m "not slow and not chaos"

# Everything CI runs (≤ 45 min on 2 cores). Slow tests start worker processes that use every core: one at a time.
test: setup-dev browser check
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "slow and not chaos" --durations=15

# Forty kills at random moments.
chaos: setup-dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -m chaos -s

# Tables in benchmarks/*/results.md. The replays need ../shared/data and say so without it.
bench: setup-dev
	$(BIN)/python benchmarks/loop_overhead/run.py
	$(BIN)/python benchmarks/scaling_step_law/run.py
	$(BIN)/python benchmarks/critical_batch/run.py
	$(BIN)/python benchmarks/noise_cost/run.py
	$(BIN)/python benchmarks/trace_accuracy/run.py
	$(BIN)/python benchmarks/token_files/run.py

format: setup-dev
	$(BIN)/ruff format src tests examples benchmarks
	$(BIN)/ruff check --fix src tests examples benchmarks

clean:
	rm -rf .venv studies dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Everything is pip into .venv, at the versions in constraints.txt. PYTHON=python3.12 make … picks another interpreter.
PYTHON ?= python3
BIN := .venv/bin
PIP := PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet

.PHONY: quickstart docs schema test test-cluster test-cuda test-integrations test-mlx check format chaos chaos-torch bench clean setup setup-dev browser

quickstart: setup
	$(BIN)/batchlab study quickstart

# The documentation as a site in build/site, without a network; any warning, such as a dead link, is an error. The pages
# are read from a folder: open build/site/index.html.
docs: .venv/.ready-docs
	$(BIN)/python docs/site/build.py

.venv/.ready-docs: .venv/.ready
	$(PIP) --editable '.[docs]'
	touch $@

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

# The browser test needs a chromium; where none can be installed the test says why it was skipped (CI: it fails).
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } \
		|| echo "chromium is not installed and cannot be from here: the browser test will be skipped"

# While working (≤ 4 min on 2 cores). COVERAGE holds more options for pytest; `make test` sets it.
schema: setup-dev  ## the JSON Schema of training_plan.json
	$(BIN)/python -m batchlab.plan > docs/training_plan.schema.json

check: setup-dev
	$(BIN)/ruff format --check src tests examples benchmarks
	$(BIN)/ruff check src tests examples benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto -m "not slow and not chaos and not integration and not cluster" $(COVERAGE)

# Everything that needs no special hardware or package (≤ 30 min on 2 cores). Slow tests start worker processes and wait
# for them, so two run at the same time, on any machine. Coverage is measured in the fast tests only: it makes Python
# code take half as long again, and the slow tests run most of theirs in worker processes, which it does not follow.
test: COVERAGE := --cov --cov-report=
test: setup-dev browser check
	@echo "coverage: the fast tests run $$($(BIN)/coverage report --format=total) % of the lines (coverage report: by file)"
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "slow and not chaos and not integration and not cluster" --durations=15

# Other trainers: each door with the real one, and every plan format read by the program it is for (≤ 8 min on 2 cores,
# installation included). They have a virtual environment of their own. Nothing is downloaded while the tests run.
# Torch comes first, and DeepSpeed without building its kernels, which need a CUDA compiler.
OTHER := .venv-integrations/bin
OTHER_PIP := PIP_CONSTRAINT=constraints-integrations.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(OTHER)/python -m pip install --quiet

.venv-integrations/.ready: pyproject.toml constraints-integrations.txt
	$(PYTHON) -m venv .venv-integrations
	$(OTHER_PIP) "torch==$$(sed -n 's/^torch==//p' constraints-integrations.txt)"
	$(OTHER_PIP) setuptools wheel
	$(OTHER_PIP) --editable . accelerate click datasets hypothesis "jsonargparse[signatures]" lightning peft pytest torchtitan \
		transformers trl typer
	DS_BUILD_OPS=0 DS_ACCELERATOR=cpu $(OTHER_PIP) --no-build-isolation deepspeed
	touch $@

test-integrations: .venv-integrations/.ready
	HF_HUB_OFFLINE=1 DS_ACCELERATOR=cpu OMP_NUM_THREADS=1 $(OTHER)/pytest -m integration tests/integrations tests/plan/test_real_parsers.py --durations=10

# MLX, in a virtual environment without torch: its tests, and a whole study (≤ 5 min on 2 cores, installation included).
# On Linux it computes on the CPU. torch's part of the agreement between the two is recorded by
# tests/mlx_/record_agreement.py, which `make check` compares with torch itself.
MLX := .venv-mlx/bin

.venv-mlx/.ready: pyproject.toml constraints-mlx.txt
	$(PYTHON) -m venv .venv-mlx
	PIP_CONSTRAINT=constraints-mlx.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(MLX)/python -m pip install --quiet --editable '.[mlx]' hypothesis pytest
	touch $@

test-mlx: .venv-mlx/.ready
	OMP_NUM_THREADS=1 $(MLX)/pytest -m mlx tests/mlx_ --durations=10

# Studies on a Slurm and a Ray of two nodes, and on two machines behind ssh, all of which the tests start on this machine
# (≤ 8 min on 2 cores, installation included). Ray is installed for them alone. Nearly all of their time is spent
# waiting, so the three are tested side by side.
# Slurm's daemons need root; where something cannot be installed its tests say why they were skipped (CI: they fail).
.venv/.ready-ray: .venv/.ready-dev
	$(PIP) --editable '.[torch,dev,ray]'
	touch $@

test-cluster: .venv/.ready-ray
	@command -v slurmctld >/dev/null || tests/cluster/install slurm-wlm munge \
		|| echo "Slurm is not installed and cannot be from here: its tests will be skipped"
	@{ command -v ssh && PATH="$$PATH:/usr/sbin" command -v sshd; } >/dev/null || tests/cluster/install openssh-server openssh-client \
		|| echo "sshd is not installed and cannot be from here: its tests will be skipped"
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 3 --dist loadfile -m cluster tests/cluster --durations=10

# The CUDA paths on torch's CUDA build, without a GPU (≤ 10 min on 2 cores, half of it the set-up in .venv-cuda).
test-cuda:
	PYTHON=$(PYTHON) tests/cuda/run -n auto

# Kills of real processes at random moments, hostile input, and 2,000 simulated histories of studies (≤ 25 min on 2
# cores). It ends with a table of what was injected. A failing history names its seed: python -m tests.simulation.
chaos: setup-dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -m chaos -s

# At least 50 kills of real studies with torch (≤ 60 min on 2 idle cores). Stopped, it goes on where it was; what
# happened so far is in studies/chaos-torch.
chaos-torch: setup-dev
	OMP_NUM_THREADS=1 $(BIN)/python tests/chaos/torch_kills.py --kills 50 --minutes 60 --folder studies/chaos-torch

# Tables in benchmarks/*/results.md. The replays need ../shared/data and say so without it.
bench: setup-dev .venv-integrations/.ready
	$(BIN)/python benchmarks/loop_overhead/run.py
	$(OTHER)/python benchmarks/loop_vs_frameworks/run.py studies/loop_vs_frameworks
	$(OTHER)/python benchmarks/scripts_in_the_wild/run.py studies/scripts_in_the_wild
	$(BIN)/python benchmarks/scaling_step_law/run.py
	$(BIN)/python benchmarks/critical_batch/run.py
	$(BIN)/python benchmarks/noise_cost/run.py
	$(BIN)/python benchmarks/trace_accuracy/run.py
	$(BIN)/python benchmarks/token_files/run.py
	$(BIN)/python benchmarks/scale/run.py
	$(BIN)/python benchmarks/end_to_end_truth/run.py studies/end_to_end_truth --each 20

format: setup-dev
	$(BIN)/ruff format src tests examples benchmarks
	$(BIN)/ruff check --fix src tests examples benchmarks

clean:
	rm -rf .venv .venv-cuda .venv-integrations .venv-mlx studies dist build .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis

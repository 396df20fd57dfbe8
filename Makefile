# Every target sets up what it needs: a Python of at least 3.11 and make are all that must be there.
PYTHON ?= python3
BIN := .venv/bin
ENV := .venv/.installed

.PHONY: train test test-lowest test-all test-long test-ray check gpu bench bench-storages bench-persistence bench-atari bench-envs bench-sbx bench-processes bench-offline learning learning-values learning-policies learning-mujoco learning-strategies learning-minatar learning-million learning-atari learning-bodies learning-models learning-short learning-imitation learning-offline learning-online learning-collectors presets docs release format clean

train: $(ENV)  ## train DQN on CartPole, and say where the curve is
	$(BIN)/python examples/dqn_cartpole.py

test: $(ENV)  ## the tests that are quick, with a quarter of the generated examples
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m "not long and not ray"

test-all: $(ENV)  ## all tests, with all generated examples; the slowest are named
	HYPOTHESIS_PROFILE=full $(BIN)/python -m pytest -q -n auto --dist worksteal -m "not ray" --durations=30

test-long: $(ENV)  ## the tests that are not quick, with all generated examples unless HYPOTHESIS_PROFILE is another; SHARE=1/3 runs a third
	HYPOTHESIS_PROFILE=$(or $(HYPOTHESIS_PROFILE),full) $(BIN)/python -m pytest -q -n auto --dist worksteal -m "long and not ray" --durations=30 $(if $(SHARE),--share $(SHARE))

test-lowest:  ## the quick tests with the oldest versions that pyproject.toml allows, in .venv-lowest; their torch takes gigabytes
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --constraint lowest-versions.txt --editable ".[dev]"
	.venv-lowest/bin/python -m pytest -q -n auto --dist worksteal -m "not long and not ray"

test-ray: $(ENV)  ## the tests that start Ray; all of them unless HYPOTHESIS_PROFILE is another
	HYPOTHESIS_PROFILE=$(or $(HYPOTHESIS_PROFILE),full) $(BIN)/python -m pytest -q -m ray --durations=10 $(if $(SHARE),--share $(SHARE)) $$(grep -rl --include="*.py" "mark\.ray" tests | sort)

check: $(ENV)  ## format, lint, types, and who imports whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff format --check --config docs/pages.toml README.md docs
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

gpu: $(ENV)  ## every test and benchmark that needs a GPU, in a table; without one, a line that says so
	$(BIN)/python benchmarks/storages/gpu.py

bench: $(ENV) .venv/.installed-bench  ## steps per second beside stable-baselines3 and CleanRL
	$(BIN)/python benchmarks/throughput/throughput.py $(BENCH)

bench-storages: $(ENV) .venv/.installed-bench  ## microseconds a batch, beside cpprb, rlox, tianshou, torchrl and stable-baselines3
	$(BIN)/python benchmarks/storages/beside_peers.py $(BENCH)
	$(BIN)/python benchmarks/storages/sum_tree.py

bench-persistence: $(ENV) .venv/.installed-bench  ## what it costs to keep experience on disk, beside PFRL, torchrl and Minari
	$(BIN)/python benchmarks/persistence/persistence.py $(BENCH)
	$(BIN)/python benchmarks/persistence/larger_than_memory.py $(BENCH)

bench-envs: $(ENV) .venv/.installed-bench  ## PPO in native vector environments, beside stable-baselines3, rlox and CleanRL's loop
	$(BIN)/python benchmarks/throughput/vector_envs.py $(BENCH)

bench-sbx: $(ENV) .venv/.installed-sbx  ## updates beside SBX, stable-baselines3's algorithms in jax, in processor time
	$(BIN)/python benchmarks/throughput/beside_sbx.py $(BENCH)

bench-processes: $(ENV)  ## collection in other processes, by overlap and by Ray
	$(BIN)/python benchmarks/throughput/overlap.py
	$(BIN)/python benchmarks/throughput/ray_scaling.py

bench-offline: $(ENV) .venv/.installed-bench  ## updates from data, beside d3rlpy: BENCH="--d3rlpy PYTHON"
	$(BIN)/python benchmarks/throughput/offline_updates.py $(BENCH)

bench-atari: $(ENV) .venv/.installed-bench  ## Atari's steps per second beside stable-baselines3 and CleanRL's loop
	$(BIN)/python benchmarks/throughput/atari.py $(BENCH)

learning: $(ENV) .venv/.installed-robotics  ## docs/learning.md, hindsight.md, prioritised.md: several seeds of everything
	runs=runs/learning-$$(date +%Y%m%d-%H%M%S) && \
	$(BIN)/python benchmarks/learning/learning.py --runs $$runs && \
	$(BIN)/python benchmarks/learning/hindsight.py --runs $$runs
	$(BIN)/python benchmarks/learning/prioritised.py

learning-values: $(ENV) .venv/.installed-bench  ## docs/values.md: value-based algorithms beside each other; continues where it was stopped
	$(BIN)/python benchmarks/learning/learning_page.py values $(BENCH)

learning-policies: $(ENV)  ## docs/policy-learning.md: policy gradients and actor-critics beside each other; continues where it was stopped
	$(BIN)/python benchmarks/learning/learning_page.py policies $(BENCH)

learning-mujoco: $(ENV) .venv/.installed-bench  ## docs/mujoco.md: beside stable-baselines3 in MuJoCo; continues where it was stopped
	$(BIN)/python benchmarks/learning/learning_page.py mujoco $(BENCH)

learning-strategies: $(ENV) .venv/.installed-bench  ## docs/replay-strategies.md: what strategies of replay change; continues where it was stopped
	$(BIN)/python benchmarks/learning/learning_page.py strategies $(BENCH)

learning-minatar: $(ENV) .venv/.installed-bench  ## docs/minatar.md: DQN, Rainbow, PQN and PPO in five games; continues where it was stopped
	$(BIN)/python benchmarks/learning/learning_page.py minatar $(BENCH)

learning-million: $(ENV) .venv/.installed-bench  ## docs/mujoco-million.md: runs in MuJoCo of the length of papers; continues where it was stopped
	$(BIN)/python benchmarks/learning/learning_page.py million $(BENCH)

learning-atari: $(ENV) .venv/.installed-bench  ## docs/atari-100k.md: 26 games of Atari in 100,000 steps; continues where it was stopped
	$(BIN)/python benchmarks/learning/learning_page.py atari $(BENCH)

learning-bodies: $(ENV) .venv/.installed-bench  ## docs/bodies.md: what residual networks change; continues where it was stopped
	$(BIN)/python benchmarks/learning/learning_page.py bodies $(BENCH)

learning-models: $(ENV)  ## docs/latent-models.md: algorithms with latent models in few steps; continues where it was stopped
	$(BIN)/python benchmarks/learning/learning_page.py models $(BENCH)

learning-short: $(ENV) .venv/.installed-bench  ## docs/short-runs.md: many short runs beside stable-baselines3; continues where it was stopped
	$(BIN)/python benchmarks/learning/short_runs.py $(BENCH)

learning-offline: $(ENV) .venv/.installed-bench  ## docs/offline-learning.md: offline results, beside d3rlpy; continues where it was stopped
	$(BIN)/python benchmarks/learning/learning_offline.py $(BENCH)

learning-online: $(ENV) .venv/.installed-bench  ## docs/offline-to-online.md: what learning online after data gains; continues where it was stopped
	$(BIN)/python benchmarks/learning/learning_page.py online $(BENCH)

learning-imitation: $(ENV) .venv/.installed-bench  ## docs/imitation.md: results of imitation; continues where it was stopped
	$(BIN)/python benchmarks/learning/learning_page.py imitation $(BENCH)

learning-collectors: $(ENV)  ## docs/collectors.md: results with collectors in other processes; continues where it was stopped
	$(BIN)/python benchmarks/learning/learning_page.py collectors $(BENCH)

presets: $(ENV) .venv/.installed-robotics  ## docs/presets.md: returns of the presets; continues where it was stopped
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[box2d,mujoco]"
	$(BIN)/python benchmarks/learning/presets.py $(BENCH)

docs: $(ENV)  ## the documentation: tables made from the classes, and the site, site/index.html
	$(BIN)/python docs/generated_parts.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

release: $(ENV)  ## the wheel and the source distribution, in dist/, and a run with the wheel in an empty environment
	rm -rf dist build
	$(BIN)/python -m build --outdir dist
	$(PYTHON) -m venv dist/try/.venv
	dist/try/.venv/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	cd dist/try && .venv/bin/pytorchrl train --algorithm dqn --env CartPole-v1 --steps 400 --seeds 1 && .venv/bin/pytorchrl ls
	rm -rf dist/try

format: $(ENV)  ## put the code into shape
	$(BIN)/ruff format .
	$(BIN)/ruff format --config docs/pages.toml README.md docs
	$(BIN)/ruff check --fix .

clean:  ## remove what the targets made
	rm -rf site .venv .venv-lowest .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info

$(ENV): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

.venv/.installed-robotics: $(ENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[robotics]"
	touch $@

.venv/.installed-bench: $(ENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[bench,mujoco]"
	touch $@

.venv/.installed-sbx: .venv/.installed-bench
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[sbx]"
	touch $@

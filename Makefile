# cbtui: `make run` to see it, `make test` to check it. Everything is made below .venv/, and the default
# model in the user's cache folder. All paths are relative, so `make -C "any folder" run` works.
#
# PYTHON=/path/to/python3.12   another Python than the first suitable one on PATH
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu   the small CPU build of torch on Linux

.DEFAULT_GOAL := help
.PHONY: help setup model run test test-long test-peers bench lint snapshots pictures clean
.NOTPARALLEL:

PY := .venv/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK := 1

help:
	@echo "make run        set up, then open the screen (without a terminal: cbtui compare)"
	@echo "make test       set up, then lint, types, import contracts and the tests"
	@echo "make test-long  the tests that take minutes"
	@echo "make test-peers against vLLM (an environment of its own, 3.4 GB in .venv-peers) and transformers"
	@echo "make bench      speed targets, measured beside transformers (PARTS=step,peers ROUNDS=1 SCALE=0.1 JSON=file)"
	@echo "make setup      the set-up alone: .venv, locked packages, cbtui, the default model"
	@echo "make snapshots  take the pictures of the snapshot tests anew"
	@echo "make pictures   take the README's pictures anew (wants a browser; minutes)"
	@echo "make clean      remove .venv and everything built; the model stays in the cache folder"

setup: model

run: setup
	@if [ -t 1 ]; then exec $(PY) -m cbtui launch; else exec $(PY) -m cbtui compare; fi

lint: .venv/.installed
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports --no-logo

# A file's tests stay together: what they share (a loaded model, a recorded run) is made once.
test: setup lint
	$(PY) -m pytest -n 2 --dist loadfile

test-long: setup
	$(PY) -m pytest -m long

test-peers: setup .venv-peers/.installed
	$(PY) -m pytest -m peers tests/peers

.venv-peers/.installed: tests/peers/vllm_env.py
	$(PY) tests/peers/vllm_env.py .venv-peers
	@touch $@

bench: setup
	$(PY) -m tests.benchmarks $(if $(PARTS),--parts $(PARTS)) $(if $(ROUNDS),--rounds $(ROUNDS)) \
		$(if $(SCALE),--scale $(SCALE)) $(if $(THREADS),--threads $(THREADS)) $(if $(JSON),--json $(JSON)) $(if $(CPU),--cpu)

snapshots: setup
	$(PY) -m pytest -m "not long and not peers" --snapshot-update

# Pillow makes the animation; nothing else wants it.
pictures: setup
	$(PY) -m pip install --quiet "pillow>=11,<14"
	$(PY) -m tests.pictures

clean:
	rm -rf .venv .venv-peers build dist *.egg-info snapshot_report.html
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find cbtui engine tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The set-up. A stage is a file that is written when the stage is over, so an interrupted one runs again;
# a second run finds all of them and asks no server anything.

# pip does not repair a package it was killed in the middle of, hence the mark before it starts: where
# .installing is left over, the environment is made anew.
.venv/.python:
	@python=""; \
	for each in $(PYTHON) python3 python3.13 python3.12 python3.11 python3.14 python; do \
		if "$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python="$$each"; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "cbtui needs Python 3.11 or newer (here: $$(python3 --version 2>&1)): install one, or say make PYTHON=/path/to/python3.12" >&2; \
		exit 1; \
	fi; \
	echo "[1/4] environment: .venv with $$("$$python" --version), 20 MB"; \
	if ! $(PY) -m pip --version >/dev/null 2>&1; then "$$python" -m venv --clear .venv; fi
	@touch $@

.venv/.packages: requirements.lock .venv/.python
	@if [ -e .venv/.installing ]; then \
		echo "[1/4] the last set-up did not finish: making .venv anew"; \
		"$$($(PY) -c 'import sys; print(getattr(sys, "_base_executable", sys.executable))')" -m venv --clear .venv; \
		touch .venv/.python; \
	fi
	@echo "[2/4] packages: about 300 MB to download, 1.3 GB on disk"
	@if [ "$$(uname -s)" = Linux ] && ! $(PY) -c 'import torch' 2>/dev/null; then \
		echo "      (with a CPU build of torch; the one on PyPI brings CUDA, about 3 GB. The small one:"; \
		echo "       PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make run)"; \
	fi
	@touch .venv/.installing
	@$(PY) -m pip install -r requirements.lock
	@rm -f .venv/.installing
	@touch $@

.venv/.installed: pyproject.toml .venv/.packages
	@echo "[3/4] cbtui itself: a link to this folder"
	@$(PY) -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# Not a stamp: the cache folder may be emptied at any time. A tenth of a second when the model is there.
model: .venv/.installed
	@echo "[4/4] default model: 93 MB to fetch once, 542 MB on disk"
	@$(PY) -m engine.model_store

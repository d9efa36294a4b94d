# `make demo` and `make test` need Python 3.11 or newer and nothing else; each installs once.
SHELL := /bin/sh
BIN := .venv/bin
# The first Python that is new enough; `make PYTHON=...` names another.
PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11 python,\
  $(shell $(p) -c 'import sys; sys.version_info >= (3, 11) and print("$(p)")' 2>/dev/null)))
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
JOBS ?= 2
# A worker that dies ends the run: pytest-xdist would wait for ever for the one in its place.
PYTEST = $(BIN)/pytest -n $(JOBS) --dist worksteal --max-worker-restart 0

# Containers often set this. Then each of the many processes of a test run, and each command of the
# demo, would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

# As many steps as take about two minutes for ARML on 2 cores; MAML gets as many, in less time.
DEMO_STEPS ?= 10000
DEMO ?= runs/demo

.PHONY: help demo study docs test test-site test-all bench clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    meta-train ARML and MAML, score them on new tasks, write a report (minutes)"
	@echo "make study   the paper's tables (SCALE=smoke: minutes; SCALE=laptop: hours), resumably"
	@echo "make docs    the documentation as a site, in build/site"
	@echo "make test    formatting, lint, types, tests"
	@echo "make test-site  the documentation's site, and pages in a browser"
	@echo "make test-all  both, and the tests that compile for minutes"
	@echo "make bench   the benchmarks (installs PyTorch, their opponent)"
	@echo "make clean   remove caches and builds; runs and the environment stay"

.venv/.made:
	@test -n "$(PYTHON)" || { echo "expected Python 3.11 or newer, found none on the path:" \
	  "install it, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@# A Python without its venv package leaves an environment without pip: it is made anew.
	@$(BIN)/python -m pip --version >/dev/null 2>&1 \
	  || $(PYTHON) -m venv --clear .venv || { echo "expected a Python that can make" \
	  "virtual environments, got $(PYTHON): install its venv package (python3-venv)" >&2; exit 1; }
	@touch $@

.venv/.installed: .venv/.made pyproject.toml
	@echo "installing into .venv (once) ..."
	@$(PIP) install --editable .
	@touch $@

.venv/.installed-%: .venv/.made pyproject.toml
	@echo "installing into .venv with the extra $* (once) ..."
	@# Most modules are never imported; those that are, are compiled then.
	@$(PIP) install --no-compile --editable '.[$*]'
	@touch .venv/.installed $@

demo: .venv/.installed
	$(BIN)/arml train regression2d/arml --run $(DEMO)/arml --steps $(DEMO_STEPS)
	$(BIN)/arml train regression2d/maml --run $(DEMO)/maml --steps $(DEMO_STEPS)
	@echo "scoring both on 1,000 new tasks ..."
	@$(BIN)/arml evaluate $(DEMO)/maml --tasks 1000 > /dev/null
	@$(BIN)/arml evaluate $(DEMO)/arml --tasks 1000 > /dev/null
	$(BIN)/arml evaluate $(DEMO)/arml --against $(DEMO)/maml --tasks 1000
	$(BIN)/arml explain $(DEMO)/arml --out $(DEMO)/arml/explain
	$(BIN)/arml report $(DEMO)/arml $(DEMO)/maml --out $(DEMO)/report.html
	@if [ "$$(uname)" = Darwin ]; then open $(DEMO)/report.html; \
	elif [ -n "$$DISPLAY$$WAYLAND_DISPLAY" ] && command -v xdg-open > /dev/null; then \
	  xdg-open $(DEMO)/report.html > /dev/null 2>&1 & \
	fi; echo "the report is $(DEMO)/report.html"

# `make study SCALE=smoke`, `make study ON=ray`; `.venv/bin/python -m study --help` has more.
SCALE ?= laptop
study: .venv/.installed
	$(BIN)/python -m study --scale $(SCALE) $(if $(ON),--on $(ON))

docs: .venv/.installed-docs
	$(BIN)/python docs/make_pages.py --check
	$(BIN)/python docs/make_site.py

test: .venv/.installed-test
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@# Types are checked beside the tests, on the core that a worker leaves free while it starts.
	$(BIN)/mypy & types=$$!; $(PYTEST) -m "not slow and not site"; tests=$$?; wait $$types && exit $$tests

# The site, and pages in a browser. Only these files have such tests: to import all takes longer.
test-site: .venv/.installed-test
	$(PYTEST) -m "site and not slow" tests/app tests/test_docs.py

# What `make test` leaves out: the contract of most methods, and other long ways to one end.
test-all: test test-site
	$(PYTEST) -m slow

bench: .venv/.installed-benchmark
	@for name in startup predict maml table; do \
	  $(BIN)/python benchmarks/$$name.py || exit 1; done

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

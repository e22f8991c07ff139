# make demo | fast | test | test-wide | test-all | test-small | test-oldest | test-systems | test-pythons | test-jax |
# cross | docs | bench | oracle | parts | release | clean
#
# Everything is installed into .venv, which the first command creates; the stamps in it say what it holds, so that a
# later command installs only after pyproject.toml has changed. Another interpreter: make PYTHON=/path/to/python3.12 ...
# make test is style, types and the tests that are not slow: of drawn programs and long tests a share, which follows from the
# commit (PYTEST_SHARE=<commit> make tests tries that commit's). make fast tries what a change most likely breaks, in a
# minute. make test-wide builds the site and tries it, and what depends on other systems, other Pythons and long runs:
# continuous integration runs both. make test-all tries all, the slow tests too.
# make test-small runs the tests with small caches, pages and thresholds, so that small programs are run as large ones
# are. make test-oldest has an environment of its own, with the oldest releases of what staticgrad depends on.
# make test-systems has another, with JAX, PyTorch, PyMC and MPI, some of which choose an older llvmlite.
# make test-pythons runs what depends on the version of Python on 3.12 to 3.14, with and without the GIL;
# tests/pythons.py says where it has them from. make test-pythons ARGS="3.14t --short" does less.
# make test-jax converts functions of JAX with its releases from 0.5 on, each in an environment under build/jax that pip
# fills; continuous integration does not. make test-jax ARGS="0.5 0.7" does less.
# make cross has Debian install what tests run programs of other machines with, as root: compilers, emulators, Node, a
# browser.
# make bench and make oracle have one, too: PyTorch chooses an older mpmath, and JAX warns of each fork.
# make parts makes the LLVM text of the runtime's parts of their C, with the clang that tests/make_parts.py names.
# make release makes the source distribution and the wheel, twice with the same bytes, checks them, and writes what they
# depend on beside them, into dist; the upload is left to you. make trial-release does so for a tree that is none yet.
# make docs builds the site into build/docs; a warning is an error, and links that lead out of the site are listed.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
SUITABLE := import sys, venv; sys.exit(sys.version_info < (3, 11))
CANDIDATES := python3 python3.11 python3.12 python3.13 python3.14 python
PYTHON ?= $(shell for p in $(CANDIDATES); do if "$$p" -c '$(SUITABLE)' 2>/dev/null; then echo "$$p"; break; fi; done)
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
WORKERS ?= 2
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist worksteal

# The tests of what staticgrad does in other systems.
SYSTEMS := $(foreach name,jax jax_convert jax_libraries torch torch_convert pymc pytensor onnx onnx_ops stan distributed foreign_feeds \
  indices_out_of_range casadi beside_pytorch,$(wildcard tests/*/test_$(name).py)) \
  $(patsubst %,"tests/repository/test_docs.py::test_the_programs_on_a_page_run[docs/%.md]",ways-in/jax-functions ways-out/jax \
  ways-out/torch ways-in/torch-modules ways-in/pymc ways-in/pytensor guides/many-machines ways-in/onnx ways-in/stan) \
  $(patsubst %,"tests/repository/test_examples.py::test_runs[%]",flax_model jax_hot_function nmpc onnx_file optimal_control pymc_nutpie stan_schools torch_module)
# The layers, what the repository says of itself, and tests that run every op and many programs once.
FAST := $(foreach name,layers repository public_names masks lanes passes text session tape_calls state plans \
  random_nests array_functions prepare schedules,$(wildcard tests/*/test_$(name).py))
CROSS := gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-riscv64-linux-gnu libc6-dev-riscv64-cross qemu-user \
  gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm lld nodejs clang valgrind chromium
CROSS_TOOLS := aarch64-linux-gnu-gcc qemu-aarch64 riscv64-linux-gnu-gcc qemu-riscv64 arm-none-eabi-gcc qemu-system-arm \
  wasm-ld node clang valgrind chromium

.NOTPARALLEL:
.PHONY: demo fast test tests test-all test-small test-oldest test-systems in-systems test-pythons test-jax test-wide check cross \
  docs bench in-bench oracle in-oracle parts release trial-release clean

demo: $(VENV)/.has-demo
	$(BIN)/staticgrad demo

test: check tests

tests: $(VENV)/.has-test
	$(PYTEST) -m "not slow and not wide"

fast: $(VENV)/.has-test
	$(BIN)/ruff check -q .
	$(PYTEST) -m "not slow and not wide" $(FAST)

test-wide: $(VENV)/.has-test
	$(MAKE) docs
	$(PYTEST) -m "wide and not slow"
	$(MAKE) test-systems
	$(MAKE) trial-release

test-all: check
	$(PYTEST)
	$(MAKE) test-small

test-small: $(VENV)/.has-test
	STATICGRAD_TARGET=small $(PYTEST) -m "not slow and not wide"

test-systems:
	$(MAKE) VENV=.venv-systems in-systems

in-systems: $(VENV)/.has-systems
	$(PYTEST) -m "not slow" $(SYSTEMS)

test-oldest:
	$(MAKE) VENV=.venv-oldest CONSTRAINTS=tests/oldest.txt tests

test-pythons: $(VENV)/.has-test
	$(BIN)/python tests/pythons.py $(ARGS)

test-jax: $(VENV)/.has-test
	$(BIN)/python tests/jax_versions.py $(ARGS)

check: $(VENV)/.has-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/check_types.py

cross:
	@(for tool in $(CROSS_TOOLS); do command -v $$tool >/dev/null || exit 1; done) || { apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(CROSS); }

docs: $(VENV)/.has-docs
	$(BIN)/sphinx-build -q -W --keep-going -n -E -d build/doctrees docs build/docs
	$(BIN)/python docs/pages.py
	@echo "build/docs/index.html"

bench:
	$(MAKE) VENV=.venv-bench in-bench

in-bench: $(VENV)/.has-bench
	$(BIN)/python benchmarks/suite.py $(ARGS)

oracle:
	$(MAKE) VENV=.venv-bench in-oracle

in-oracle: $(VENV)/.has-bench
	$(BIN)/python tests/oracle/make_oracle.py $(ARGS)

parts: $(VENV)/.has-test
	$(BIN)/python tests/make_parts.py

release: $(VENV)/.has-release
	$(BIN)/python tests/release.py

trial-release: $(VENV)/.has-release
	$(BIN)/python tests/release.py --trial --into build/release

clean:
	rm -rf .venv .venv-bench .venv-oldest .venv-systems build dist docs/_made docs/examples *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find staticgrad compiler runtime tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@"$(PYTHON)" -c '$(SUITABLE)' 2>/dev/null || { \
	  echo "staticgrad needs Python 3.11 or newer with the venv module; none of: $(or $(PYTHON),$(CANDIDATES))." >&2; \
	  echo "Say which interpreter to use: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	rm -rf $(VENV)
	"$(PYTHON)" -m venv $(VENV)
	touch $@

$(VENV)/.has-demo: EXTRAS := demo
$(VENV)/.has-test: EXTRAS := test,dev,demo
$(VENV)/.has-systems: EXTRAS := systems,test,demo
$(VENV)/.has-docs: EXTRAS := docs
$(VENV)/.has-bench: EXTRAS := bench
$(VENV)/.has-release: EXTRAS := release
$(VENV)/.has-demo $(VENV)/.has-test $(VENV)/.has-systems $(VENV)/.has-docs $(VENV)/.has-bench $(VENV)/.has-release: $(VENV)/.created pyproject.toml $(CONSTRAINTS)
	$(PIP) install --quiet $(CONSTRAINTS:%=--constraint %) --editable ".[$(EXTRAS)]"
	touch $@

# SPDX-License-Identifier: Apache-2.0
#
# make            build hostjit into .venv and the source tree
# make demo       build, then run three models through hostjit.compile
# make test       build, then run every test
# make help       list all targets
#
# PYTHON          the interpreter to start from; a torch that it can import is used, else one is installed
# HOSTJIT_JOBS    compile jobs and test processes at a time
# CMAKE_FLAGS     more flags for CMake, for example -DLLVM_DIR=/usr/lib/llvm-19/lib/cmake/llvm

PYTHON ?= python3
HOSTJIT_JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE_FLAGS ?=
TORCH := torch==2.13.0

VENV := .venv
BUILD := build/dev
SANITIZE := build/sanitize
DEPENDENCIES := $(CURDIR)/build/test-dependencies

python := $(VENV)/bin/python
pip := $(python) -m pip --disable-pip-version-check --quiet
cmake := $(VENV)/bin/cmake
configure := $(cmake) -S . -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(VENV)/bin/ninja \
  -DPython_EXECUTABLE=$(CURDIR)/$(python) -DCMAKE_CXX_COMPILER=$(CXX)
# Runs a binary of GoogleTest in as many processes as there are jobs.
in_shards = seq 0 $$(($(HOSTJIT_JOBS) - 1)) | GTEST_TOTAL_SHARDS=$(HOSTJIT_JOBS) \
  xargs -P $(HOSTJIT_JOBS) -I{} env GTEST_SHARD_INDEX={} $(1) --gtest_brief=1
cxx_sources = $(shell git ls-files -co --exclude-standard '*.cpp' '*.h')

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: all demo test test-cpp test-python sanitize bench lint tidy format clean distclean help

all: $(VENV)/installed $(BUILD)/configured
	@$(cmake) --build $(BUILD) --parallel $(HOSTJIT_JOBS) --target _C tools

demo: all
	@$(python) -m hostjit demo

test: test-cpp test-python

test-cpp: $(VENV)/installed $(BUILD)/with-tests
	@$(cmake) --build $(BUILD) --parallel $(HOSTJIT_JOBS) --target hostjit_cpp_tests
	@$(call in_shards,$(BUILD)/tests/cpp/hostjit_cpp_tests)

test-python: all $(VENV)/dev
	@$(python) -m pytest -n $(HOSTJIT_JOBS) --dist worksteal tests

# Address and undefined-behaviour sanitizers, for the C++ tests.
sanitize: $(SANITIZE)/configured
	@$(cmake) --build $(SANITIZE) --parallel $(HOSTJIT_JOBS) --target hostjit_cpp_tests
	@$(call in_shards,UBSAN_OPTIONS=print_stacktrace=1 $(SANITIZE)/tests/cpp/hostjit_cpp_tests)

bench: all $(BUILD)/with-bench
	@$(cmake) --build $(BUILD) --parallel $(HOSTJIT_JOBS) --target hostjit_cpp_bench
	@$(BUILD)/bench/cpp/hostjit_cpp_bench
	@$(python) bench/python/latency.py

lint: $(VENV)/installed $(VENV)/dev
	@$(python) -m ruff check .
	@$(python) -m ruff format --check .
	@$(VENV)/bin/clang-format --dry-run -Werror $(cxx_sources)
	@$(python) -m mypy

# Slow: it parses the headers of LLVM and PyTorch, which GCC has precompiled for itself. TIDY_FILES
# narrows it.
TIDY_FILES ?= $(filter csrc/%.cpp,$(cxx_sources))
tidy: all $(VENV)/dev
	@printf '%s\n' $(TIDY_FILES) | xargs -P $(HOSTJIT_JOBS) -n 1 \
	  $(VENV)/bin/clang-tidy --quiet --warnings-as-errors='*' --extra-arg-before=-Wno-ignored-gch -p $(BUILD)

format: $(VENV)/dev
	@$(python) -m ruff check --fix-only --quiet .
	@$(python) -m ruff format .
	@$(VENV)/bin/clang-format -i $(cxx_sources)

clean:
	rm -rf build dist python/hostjit/*.so .pytest_cache .mypy_cache .ruff_cache

distclean: clean
	rm -rf $(VENV)

help:
	@echo 'all demo test test-cpp test-python sanitize bench lint tidy format clean distclean'

# --- The virtual environment, one stamp per step ----------------------------------------------

# A torch that $(PYTHON) can import is made visible inside, wherever it lives.
define find_torch
import os, sys
try:
    import torch
except ImportError:
    sys.exit()
release = tuple(int(part) for part in torch.__version__.split(".")[:2])
if (2, 11) <= release <= (2, 15):
    print(os.path.dirname(os.path.dirname(torch.__file__)))
else:
    print(f"torch {torch.__version__} is there, but hostjit needs 2.11 to 2.15", file=sys.stderr)
endef
export find_torch

$(VENV)/created:
	@sh cmake/check_machine.sh "$(PYTHON)" "$(CXX)"
	@echo 'Creating $(VENV)'
	@$(PYTHON) -m venv --clear $(VENV)
	@site=$$($(PYTHON) -c "$$find_torch") && if [ -n "$$site" ]; then echo "Using the torch in $$site"; \
	  echo "import site; site.addsitedir('$$site')" > \
	  "$$($(python) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/parent_torch.pth"; fi
	@$(pip) install 'pip>=25.1'
	@touch $@

$(VENV)/torch: $(VENV)/created
	@$(python) -c 'import torch' 2>/dev/null || { echo 'Installing $(TORCH)'; $(pip) install $(TORCH) numpy; } \
	  || { echo "hostjit: pip found no $(TORCH) for $$($(python) --version) on $$(uname -m) (its reason is" \
	  "above). Use a Python that has a wheel, or one where torch 2.11 to 2.15 is installed:" \
	  "make distclean, then make PYTHON=/path/to/python3" >&2; exit 1; }
	@touch $@

# The tools are installed here even when the parent environment has them, so that versions are these.
$(VENV)/requirements: pyproject.toml $(VENV)/torch
	@echo 'Installing the build requirements'
	@$(pip) install --ignore-installed --group build
	@touch $@

$(VENV)/dev: pyproject.toml $(VENV)/requirements
	@echo 'Installing the development tools'
	@$(pip) install --ignore-installed --group lint
	@$(pip) install --group dev
	@touch $@

# The package is editable: Python comes from python/, and the module is built beside it by CMake.
$(VENV)/installed: pyproject.toml $(VENV)/requirements
	@$(pip) install --no-build-isolation --editable . -Cwheel.cmake=false -Ceditable.mode=inplace
	@touch $@

# --- Build trees ------------------------------------------------------------------------------

$(BUILD)/configured: $(VENV)/requirements
	@$(configure) --fresh -B $(BUILD) -DHOSTJIT_INPLACE=ON -DHOSTJIT_BUILD_TOOLS=ON $(CMAKE_FLAGS)
	@touch $@

$(BUILD)/with-tests $(BUILD)/with-bench: $(BUILD)/with-%: $(BUILD)/configured $(DEPENDENCIES)/unpacked
	@$(cmake) -B $(BUILD) -DHOSTJIT_TEST_DEPENDENCIES=$(DEPENDENCIES) \
	  -DHOSTJIT_BUILD_$(if $(filter tests,$*),TESTS,BENCH)=ON >/dev/null
	@touch $@

# Eight sources at a time: headers are most of a source's time, and nobody changes this tree.
$(SANITIZE)/configured: $(VENV)/requirements $(DEPENDENCIES)/unpacked
	@$(configure) --fresh -B $(SANITIZE) -DHOSTJIT_SANITIZE=address,undefined \
	  -DCMAKE_UNITY_BUILD=ON -DHOSTJIT_BUILD_MODULE=OFF -DHOSTJIT_BUILD_TESTS=ON \
	  -DHOSTJIT_TEST_DEPENDENCIES=$(DEPENDENCIES) $(CMAKE_FLAGS) >/dev/null
	@touch $@

# Without the package index, CMake falls back to an installed GoogleTest and Google Benchmark.
$(DEPENDENCIES)/unpacked: cmake/test_dependencies.txt | $(VENV)/requirements
	@echo 'Fetching GoogleTest and Google Benchmark'
	@rm -rf $(@D) && mkdir -p $(@D)
	@if $(pip) download --no-deps --no-build-isolation --no-binary :all: --require-hashes \
	  -d $(@D) -r $<; then tar -xzf $(@D)/*.tar.gz -C $(@D) --strip-components=2 --wildcards \
	  '*/deps/googletest-*' '*/deps/google-benchmark' && mv $(@D)/googletest-* $(@D)/googletest; \
	  else echo 'Could not fetch them; looking for installed ones (libgtest-dev, libbenchmark-dev).'; fi
	@touch $@

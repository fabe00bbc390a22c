# Every target sets up what it needs in .venv; nothing is needed beforehand but Python 3.11 or newer and a C++ compiler.
# `make demo` shows the package, `make quick` is the inner loop, `make check` is what a change must pass.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CXX ?= g++
FUZZ_SECONDS ?= 600
WHEEL_TESTS ?= quick
SHELL := /bin/bash
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer

KERNEL_TESTS := tests/reference tests/problems tests/data/test_text_reader.py tests/data/test_fuzz_corpus.py tests/model_io/test_fuzz_corpus.py tests/estimators/test_fuzz_corpus.py

CPP_SOURCES := $(wildcard cpp/*/*.?pp cpp/bindings/testing/*)
CORE_SOURCES := CMakeLists.txt pyproject.toml $(filter-out cpp/tests/% cpp/native/%,$(CPP_SOURCES))

.PHONY: help demo check quick test compatibility lint format bench reproduce-one-vs-all reproduce-four-quadrants reproduce-output-codes reproduce-orthogonal-transfer reproduce-top-k-rivals bench-rivals wheel docs sanitized-core sanitize fuzz fuzz-guided clean
help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/' | expand -t 40

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "widemargin needs Python 3.11 or newer; say which one: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11"; exit 1; }
	@command -v $(CXX) >/dev/null \
	  || { echo "widemargin needs a C++17 compiler; install g++ or clang, or name yours: make $(MAKECMDGOALS) CXX=clang++"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# A stamp for each set of extras: rebuilt when the C++ core or the list of dependencies changes.
$(VENV)/.installed-%: $(BIN)/python $(CORE_SOURCES)
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@touch $@
# The extra `dev` contains all that `make check` needs, so that a fresh clone builds the core once.
$(VENV)/.installed-dev: $(BIN)/python $(CORE_SOURCES)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $(VENV)/.installed-{test,docs,dev}

demo: $(VENV)/.installed-cli,report ## train every family on bundled data, compare them, and write a report
	$(BIN)/widemargin demo

check: $(VENV)/.installed-dev ## all that a change must pass: lint, C++ tests, tests and documentation
	@$(MAKE) --no-print-directory lint cpp-test test docs

test: $(VENV)/.installed-test ## run the tests
	$(BIN)/python -m pytest --numprocesses 2 --quiet

# The first case of every test that is not marked as slow, on few hypothesis examples; tests/conftest.py chooses them.
# Compiled tests are kept between runs even where PYTHONDONTWRITEBYTECODE is set: pytest compiles them for 6 s per worker.
quick: $(VENV)/.installed-test ## the inner loop: a part of the tests, from every area, in less than a minute
	PYTHONDONTWRITEBYTECODE= HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest --numprocesses 2 --quiet --durations 5 -m quick tests

compatibility: ## estimator and solver tests on the oldest dependencies, and on the newest with every further Python
	$(PYTHON) tools/compatibility.py

lint: $(VENV)/.installed-dev ## check format, style, types and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(CPP_SOURCES) fuzz/*.cpp include/*.h examples/native/*.c
	$(BIN)/mypy
	$(BIN)/codespell

format: $(VENV)/.installed-dev ## fix the format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP_SOURCES) fuzz/*.cpp include/*.h examples/native/*.c

bench: $(VENV)/.installed-test ## ratios against rivals; WIDEMARGIN_DATA names a folder of real data
	@for script in $(filter-out benchmarks/reproduce_% benchmarks/against.py,$(wildcard benchmarks/[a-z]*.py)); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

reproduce-one-vs-all: $(VENV)/.installed-test ## the paper's figures and tables, into docs/reproductions; needs WIDEMARGIN_DATA
	PYTHONPATH=benchmarks $(BIN)/python -m reproduce_one_vs_all

reproduce-four-quadrants: $(VENV)/.installed-test ## figure 5 of the paper on output codes
	PYTHONPATH=benchmarks $(BIN)/python benchmarks/reproduce_four_quadrants.py

reproduce-output-codes: $(VENV)/.installed-test ## accuracy of drawn, learned and greedy codes; needs WIDEMARGIN_DATA
	PYTHONPATH=benchmarks $(BIN)/python benchmarks/reproduce_output_codes.py

reproduce-orthogonal-transfer: $(VENV)/.installed-test ## tables 2 to 8 of the paper; needs WIDEMARGIN_DATA and hiclass
	PYTHONPATH=benchmarks $(BIN)/python -m reproduce_orthogonal_transfer

reproduce-top-k-rivals: $(VENV)/.installed-test ## the top-k paper's table with its rivals; needs WIDEMARGIN_DATA
	PYTHONPATH=benchmarks $(BIN)/python -m reproduce_top_k_rivals

bench-rivals: $(VENV)/.installed-test ## every rival of PyPI, each in its own environment, against ours; needs WIDEMARGIN_DATA
	PYTHONPATH=benchmarks $(BIN)/python -m rivals_from_pypi

# The wheel is built from the source distribution, repaired, and tried in an empty environment outside the checkout.
wheel: $(VENV)/.installed-release ## build the source distribution and this machine's wheel, and try them; WHEEL_TESTS=tests for all tests
	@rm -rf build/wheel && mkdir -p build/wheel dist
	$(BIN)/python -m build --outdir build/wheel .
	@if [ "$$(uname)" = Linux ]; then PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel repair --wheel-dir build/wheel/repaired build/wheel/*.whl; \
	else mkdir build/wheel/repaired && cp build/wheel/*.whl build/wheel/repaired; fi
	PYTHON=$(BIN)/python tools/try_wheel.sh build/wheel/repaired/*.whl build/wheel/*.tar.gz $(WHEEL_TESTS)
	@mv build/wheel/*.tar.gz build/wheel/repaired/*.whl dist/ && ls dist

docs: $(VENV)/.installed-docs ## build the documentation into docs/_build
	@rm -rf docs/api/generated docs/gallery
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "The documentation is in docs/_build/html/index.html"

# Links to other sites are tried where there is a network; links between our own pages are part of the build and of `make test`.
.PHONY: linkcheck
linkcheck: $(VENV)/.installed-docs ## check the links of the documentation, those to other sites included
	$(BIN)/sphinx-build -q -b linkcheck -D plot_gallery=0 docs docs/_build/linkcheck
	@echo "What was tried is in docs/_build/linkcheck/output.txt"

# Python on a core built with the sanitizers; first_on_path.py makes it win over the editable install of .venv.
SANITIZED_PYTHON = PYTHONPATH=build/sanitize/site ASAN_OPTIONS=detect_leaks=0 \
  LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" $(BIN)/python
sanitized-core: $(VENV)/.installed-test
	@mkdir -p build/sanitize
	$(BIN)/python -m pip install --quiet --no-deps --target build/sanitize/site --upgrade . \
	  --config-settings=cmake.define.WIDEMARGIN_SANITIZE=ON --config-settings=cmake.define.WIDEMARGIN_TESTING=ON \
	  --config-settings=build-dir=build/sanitize/core
	@cp tools/first_on_path.py build/sanitize/site/sitecustomize.py
	@$(SANITIZED_PYTHON) -c 'import widemargin._core as core; assert "/sanitize/" in core.__file__, core.__file__'

# The C++ tests, without Python and two at a time: as they are, or under the sanitizers. Only changed tests are compiled.
CPP_TESTS := $(patsubst cpp/tests/%.cpp,%,$(wildcard cpp/tests/test_*.cpp))
CPP_JOBS ?= 2
CCACHE := $(shell command -v ccache)
# $(1): folder below build; $(2): flags; $(3): compiler; $(4): program that runs the tests, if any
define cpp_test_rules
build/$(1)/%.o: cpp/tests/%.cpp
	@mkdir -p $$(@D)
	$$(CCACHE) $(3) -std=c++17 $(2) -Icpp -MMD -MP -c $$< -o $$@
build/$(1)/%.run: build/$(1)/%.o
	@$(3) $(2) $$< -pthread -o build/$(1)/$$* && $(4) build/$(1)/$$*
.PRECIOUS: build/$(1)/%.o
endef
$(eval $(call cpp_test_rules,cpp-test,-O1,$$(CXX),))
$(eval $(call cpp_test_rules,sanitize,-O1 -g $(SANITIZE),$$(CXX),))
# The flags of the wheel; static, so that no ARM libraries are needed at run time.
$(eval $(call cpp_test_rules,arm,-O3 -ffp-contract=fast -Wno-psabi -static,$$(ARM_CXX),$$(ARM_RUN)))
-include $(wildcard build/cpp-test/*.d build/sanitize/*.d build/arm/*.d)

.PHONY: cpp-test
cpp-test: ## compile and run the C++ tests
	@$(MAKE) --no-print-directory --jobs $(CPP_JOBS) $(CPP_TESTS:%=build/cpp-test/%.run)
	@echo "All C++ tests passed"

ARM_CXX ?= aarch64-linux-gnu-g++
ARM_RUN ?= $(firstword $(shell command -v qemu-aarch64 || command -v qemu-aarch64-static) qemu-aarch64)
.PHONY: arm
arm: ## compile the C++ tests for 64-bit ARM and run them in QEMU; needs a cross compiler
	@command -v $(ARM_CXX) >/dev/null || { echo "make arm needs $(ARM_CXX); on Debian: apt-get install g++-aarch64-linux-gnu"; exit 1; }
	@command -v $(ARM_RUN) >/dev/null || { echo "make arm needs $(ARM_RUN); on Debian: apt-get install qemu-user"; exit 1; }
	@$(MAKE) --no-print-directory --jobs $(CPP_JOBS) $(CPP_TESTS:%=build/arm/%.run)
	@$(ARM_RUN) build/arm/test_simd | grep -x 'instruction set in use: neon'
	@echo "All C++ tests passed on ARM"

# The C interface and the program for machines without Python. Scores are computed as in the core: no contraction.
NATIVE_FLAGS := -std=c++17 -O3 -ffp-contract=off -falign-loops=64 -falign-functions=64 -Wall -Wextra -Wno-maybe-uninitialized \
  -fPIC -fvisibility=hidden -Icpp -Iinclude
NATIVE := build/native/libwidemargin.so build/native/widemargin-native build/native/predict
RUSTC ?= $(shell command -v rustc)
build/native/%.o: cpp/native/%.cpp
	@mkdir -p $(@D)
	$(CCACHE) $(CXX) $(NATIVE_FLAGS) -MMD -MP -c $< -o $@
-include $(wildcard build/native/*.d)
build/native/libwidemargin.so: build/native/widemargin.o
	$(CXX) -shared -pthread $< -o $@
build/native/widemargin-native: build/native/main.o build/native/widemargin.o
	$(CXX) -static -pthread -s $^ -o $@
build/native/predict: examples/native/predict.c build/native/libwidemargin.so
	$(CC) -std=c99 -Wall -Wextra -Werror -Iinclude $< -Lbuild/native -lwidemargin -Wl,-rpath,'$$ORIGIN' -o $@
build/native/predict-rust: examples/native/predict.rs build/native/libwidemargin.so
	$(RUSTC) -O $< -L build/native -C link-args='-Wl,-rpath,$$ORIGIN' -o $@

.PHONY: native
native: $(NATIVE) $(if $(RUSTC),build/native/predict-rust) $(VENV)/.installed-test ## build and test the C interface, the static program and their examples
	@$(if $(RUSTC),,echo "no rustc: the example in Rust is skipped")
	WIDEMARGIN_NATIVE=build/native $(BIN)/python -m pytest --quiet tests/native
	@ls -l $(NATIVE)

sanitize: sanitized-core ## run the C++ tests and the kernel tests under ASan and UBSan
	@$(MAKE) --no-print-directory --jobs $(CPP_JOBS) $(CPP_TESTS:%=build/sanitize/%.run)
	$(SANITIZED_PYTHON) -m pytest --quiet -p no:cacheprovider $(KERNEL_TESTS)

# Mutated inputs under the sanitizers: text in C++, then model folders and data through Python. What is found is kept in
# fuzz/failures; a number may be given for each, and FUZZ_SEED for other inputs. Then hostile fits of every estimator,
# whose certificates are recomputed; without the sanitizers, under which they would take ten times as long.
FUZZ_TEXTS ?= 60000
FUZZ_FOLDERS ?= 5000
FUZZ_MODELS ?= 20000
FUZZ_DATA ?= 20000
FUZZ_TABLES ?= 10000
FUZZ_NATIVE ?= 20000
FUZZ_FITS ?= 10000
FUZZ_JOBS ?= 2
ifndef FUZZ_SEED
FUZZ_SEED := $(shell date +%s)
endif
fuzz: sanitized-core ## 135,000 mutated texts, models, data sets and tables under ASan and UBSan, and 10,000 hostile fits
	@mkdir -p build/fuzz fuzz/failures
	$(CXX) -std=c++17 -g -O1 $(SANITIZE) -Icpp fuzz/fuzz_text_reader.cpp fuzz/mutate_main.cpp -pthread -o build/fuzz/text_mutator
	build/fuzz/text_mutator $(FUZZ_TEXTS) $(FUZZ_SEED) fuzz/corpus/text_reader/*
	@$(MAKE) --no-print-directory fuzz-native
	$(SANITIZED_PYTHON) fuzz/fuzz_model_loader.py --cases $(FUZZ_FOLDERS) --seed $(FUZZ_SEED)
	$(SANITIZED_PYTHON) fuzz/fuzz_models.py --cases $(FUZZ_MODELS) --seed $(FUZZ_SEED)
	$(SANITIZED_PYTHON) fuzz/fuzz_data.py --cases $(FUZZ_DATA) --seed $(FUZZ_SEED)
	$(SANITIZED_PYTHON) fuzz/fuzz_tables.py --cases $(FUZZ_TABLES) --seed $(FUZZ_SEED)
	$(BIN)/python fuzz/fuzz_certificates.py --cases $(FUZZ_FITS) --seed $(FUZZ_SEED) --jobs $(FUZZ_JOBS) --json build/fuzz/certificates.json

# Damaged packed models through the C interface. Memory for a hostile size is refused, as on a small machine.
.PHONY: fuzz-native
fuzz-native: ## 20,000 damaged packed models through the C interface under ASan and UBSan
	@mkdir -p build/fuzz fuzz/failures
	$(CCACHE) $(CXX) -std=c++17 -g -O1 $(SANITIZE) -ffp-contract=off -Icpp -Iinclude -c cpp/native/widemargin.cpp -o build/fuzz/widemargin.o
	$(CXX) -std=c++17 -g -O1 $(SANITIZE) -Icpp -Iinclude fuzz/fuzz_native.cpp build/fuzz/widemargin.o -pthread -o build/fuzz/native
	ASAN_OPTIONS=allocator_may_return_null=1:max_allocation_size_mb=512 build/fuzz/native $(FUZZ_NATIVE) $(FUZZ_SEED) fuzz/corpus/native/*.wm

# Guided by coverage, a third of the time each: libFuzzer on the C++ reader (where clang has it), the C++ reader against
# its Python twin, and atheris on the model reader; then the hypothesis tests on fresh examples.
CLANG ?= $(firstword $(foreach name,clang++ clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14,$(shell command -v $(name))))
FUZZ_SHARE = $$(( $(FUZZ_SECONDS) / 3 ))
fuzz-guided: $(VENV)/.installed-fuzz ## fuzz the readers, guided by coverage, for FUZZ_SECONDS (600)
	@mkdir -p build/fuzz/found fuzz/failures
	@if [ -n "$(CLANG)" ]; then \
	  $(CLANG) -std=c++17 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -Icpp \
	    fuzz/fuzz_text_reader.cpp -pthread -o build/fuzz/text_reader && \
	  build/fuzz/text_reader -max_total_time=$(FUZZ_SHARE) -timeout=10 -max_len=4096 -print_final_stats=1 \
	    -artifact_prefix=fuzz/failures/ build/fuzz/found fuzz/corpus/text_reader; \
	else echo "no clang: the C++ reader is fuzzed through Python only"; fi
	$(BIN)/python fuzz/fuzz_text_reader.py --seconds $(FUZZ_SHARE) --seed $$RANDOM
	$(BIN)/python fuzz/fuzz_model_loader.py --engine atheris --seconds $(FUZZ_SHARE)
	HYPOTHESIS_PROFILE=fresh $(BIN)/python -m pytest --quiet --numprocesses 2 tests/data tests/problems tests/model_io tests/reference tests/solvers

clean: ## remove everything that was built
	rm -rf $(VENV) build dist docs/_build docs/api/generated docs/gallery

# Two commands matter: `make demo` and `make test`. Both set everything up in .venv and need nothing
# beforehand but Python 3.11 or newer and a C++ compiler.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CXX ?= g++
FUZZ_SECONDS ?= 600
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer

CORE_SOURCES := CMakeLists.txt pyproject.toml $(wildcard cpp/*.hpp cpp/bindings/*)

.PHONY: help demo test lint format bench docs sanitize fuzz clean
help: ## show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/make \1\t\2/' | expand -t 16

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

demo: $(VENV)/.installed-cli ## train, evaluate and certify a model on embedded data
	$(BIN)/widemargin demo

test: $(VENV)/.installed-test ## run the tests
	$(BIN)/python -m pytest --numprocesses 2 --quiet

lint: $(VENV)/.installed-dev ## check format, style, types and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror cpp/*.hpp cpp/bindings/* cpp/tests/* fuzz/*.cpp
	$(BIN)/mypy
	$(BIN)/codespell

format: $(VENV)/.installed-dev ## put the format right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i cpp/*.hpp cpp/bindings/* cpp/tests/* fuzz/*.cpp

clean: ## remove everything that was built
	rm -rf $(VENV) build dist docs/_build

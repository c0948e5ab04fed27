# `make check` is what has to be green before a commit: format, types, tests.
PYTHON ?= .venv/bin/python

.PHONY: check lint types test nightly torture lock wheel binary

check: lint types test

lint:
	$(PYTHON) -m ruff check .

types:
	$(PYTHON) -m mypy

test:
	script/test

# What a release needs besides what every commit runs (docs/testing.md): all tests, more rounds and seeds; some two hours.
nightly:
	script/test nightly

# The long forms of what tests/crash, tests/fuzz, the kill loop, the rounds of faults on sets of brokers and the
# comparisons do (the hot path's twins, the two ways of counting facts), and what the compiled twin does under the
# sanitizers: hours. Seeds of failures are in their messages.
torture:
	script/sanitized
	ROCKETBOX_TORTURE=1 script/test -s tests/crash tests/fuzz tests/hotpath tests/clients/test_kill.py tests/rig tests/spark_reports/facts

# dist/*.whl: with the compiled part for this Python and machine; without a C compiler one for every machine.
# What earlier builds left in build/ would be packed, too.
wheel:
	rm -rf build dist/*.whl
	$(PYTHON) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl
	@if $(PYTHON) -m zipfile -l dist/*.whl | grep -q '_compiled[.].*[.]so '; then echo "hot path: compiled"; \
	else echo "hot path: pure Python: $$($(PYTHON) appliance/engine/hotpath/building.py)"; fi

# The whole program as one file, dist/rocketbox: binary/.
binary:
	script/binary

# Rewrites the locked requirements from pyproject.toml; needs pip-tools beside the interpreter in LOCKER.
LOCKER ?= pip-compile
LOCK = $(LOCKER) --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url \
	--no-emit-trusted-host --no-emit-find-links --no-header --resolver=backtracking

lock:
	$(LOCK) --output-file requirements/test.txt --extra console --extra reports --extra test pyproject.toml requirements/build.in
	$(LOCK) --output-file requirements/reports.txt --constraint requirements/test.txt --extra console --extra reports pyproject.toml requirements/build.in
	$(LOCK) --output-file requirements/console.txt --constraint requirements/test.txt --extra console pyproject.toml requirements/build.in
	$(LOCK) --output-file requirements/base.txt --constraint requirements/test.txt pyproject.toml requirements/build.in

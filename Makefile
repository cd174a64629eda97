# Set-up, the demo, the tests. `make demo` and `make test` need Python 3.11 or newer and nothing else.
# A distribution's Python before one compiled by hand: profile-guided optimization saves a sixth of the CPU per review.
PYTHON ?= $(shell for each in /usr/bin/python3.11 python3.11; do $$each -c 'import ensurepip' 2>/dev/null && echo $$each && exit; done; echo python3)
BIN := .venv/bin
STAMP := .venv/.locked
# More workers than cores, because most tests wait. A run of the pure tests only computes.
WORKERS ?= 5
RESULTS := .test-results
# Without bytecode files, each of some thousand processes of a run would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test check image-test sbom soak bench bench-quick lock controlplane-up controlplane-down
setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q webhook certs
	@touch $@

# On a terminal the server stays up afterwards; in a script the demo ends.
demo: setup
	@if [ -t 1 ]; then $(BIN)/podgate demo; else $(BIN)/podgate demo --once; fi

# The first time it builds a Kubernetes control plane, which takes minutes. Durations are in .test-results.
test: setup
	$(BIN)/python -m tests.cluster build
	$(BIN)/python -m tests.bench.programs
	$(BIN)/python -m tests.monitoring.programs
	$(BIN)/pytest -n $(WORKERS) --all-tiers --junitxml=$(RESULTS)/test.xml

# A tenth of the examples, and of the stores only the one in memory.
check: setup
	PODGATE_TEST_SHORT=yes $(BIN)/pytest -n 2 --junitxml=$(RESULTS)/check.xml -k "not redis- and not valkey-" tests/architecture tests/core tests/reviews tests/contract

# The image, built and run without a container engine. As root: what is missing of buildah and mmdebstrap is installed by
# apt-get. The base that the Dockerfile names is replaced by one of Debian's packages, kept in ~/.cache/podgate.
image-test: setup
	$(BIN)/python -m tests.image
	$(BIN)/pytest -s --junitxml=$(RESULTS)/image-test.xml tests/image

# The bill of materials of an image whose file system is in a folder: `make -s sbom ROOT=FOLDER > podgate.cdx.json`
sbom: setup
	@$(BIN)/python -m tests.image.bill_of_materials $(ROOT)

# The long form of what `make test` proves in short.
soak: setup
	PODGATE_TEST_OPERATIONS=200000 PODGATE_TEST_RACE_SECONDS=60 PODGATE_TEST_EXAMPLES=2000 PODGATE_TEST_REDIS=all $(BIN)/pytest -s tests/contract
	PODGATE_TEST_EXAMPLES=10000 $(BIN)/pytest tests/core/admission/test_pairs.py
	PODGATE_TEST_STANDSTILL=soak $(BIN)/pytest -s tests/app/test_redis_serving.py -k stalled_redis
	PODGATE_TEST_OUTAGES=50 $(BIN)/pytest -s tests/adapters/redis_store/test_outages.py tests/adapters/redis_store/test_partitions.py
	PODGATE_TEST_EXAMPLES=10000 $(BIN)/pytest tests/store/test_fallback_bound.py
	PODGATE_TEST_FLOOD=soak $(BIN)/pytest -s tests/server/test_flood.py
	PODGATE_TEST_EXAMPLES=100000 $(BIN)/pytest tests/server/test_request_parser.py
	PODGATE_TEST_FUZZ_SECONDS=1800 $(BIN)/pytest tests/server/test_fuzz.py
	PODGATE_TEST_TRIPS=200 $(BIN)/pytest -s tests/app/test_breakers_serving.py -k seen_by_the_other
	PODGATE_TEST_KILLS=20 $(BIN)/pytest -s tests/cluster/test_controller_restarts.py -k churn
	PODGATE_TEST_EXAMPLES=500 $(BIN)/pytest -s tests/cluster/test_generated_workloads.py
	PODGATE_TEST_CALLS=1000 $(BIN)/pytest tests/cluster/test_availability.py -k under_load
	PODGATE_TEST_ROTATION=soak $(BIN)/pytest -s tests/cluster/test_rotation.py
	PODGATE_TEST_ROTATION=soak $(BIN)/pytest tests/cluster/test_certificates.py -k "under_load or two_controllers"
	PODGATE_TEST_EXAMPLES=1000 $(BIN)/pytest tests/core tests/cli tests/certs tests/controller tests/offline tests/store --ignore tests/core/admission/test_pairs.py --ignore tests/store/test_fallback_bound.py
	PODGATE_TEST_REDIS=all $(BIN)/pytest tests/app tests/cli/test_demo.py tests/cluster/test_shared_redis.py tests/offline/test_remote_server.py

# `make bench BEFORE=REVISION` measures the server of another commit beside today's.
bench: setup
	$(BIN)/python -m tests.bench $(if $(BEFORE),--before $(BEFORE))

# Within a minute. The last line is JSON: Podgate's CPU time per review, divided by that of other webhook servers.
bench-quick: setup
	@$(BIN)/python -m tests.bench --quick

# A cluster without machines, for a person: the one that tests/cluster runs on. `eval "$(make -s controlplane-up)"`
controlplane-up: setup
	@$(BIN)/python -m tests.cluster build
	@$(BIN)/python -m tests.cluster up

controlplane-down: setup
	@$(BIN)/python -m tests.cluster down

# The second one is the image's: the same versions without the tools, and the backend that installs the project there.
lock:
	uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -o requirements.lock
	echo setuptools | uv pip compile pyproject.toml - --constraints requirements.lock --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -o requirements.serve.lock

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

.PHONY: setup demo test check chaos image-test fuzz mutants bench bench-quick scale pictures lock
.PHONY: soak soak-core soak-input soak-redis soak-cluster soak-load
.PHONY: controlplane-up controlplane-down
.PHONY: variables dist sign release-check release canary canary-down
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
	$(BIN)/python -m tests.browser
	$(BIN)/python -m tests.chart.programs
	$(BIN)/python -m tests.monitoring
	$(BIN)/python -m tests.scheduling.programs
	$(BIN)/python -m tests.chaos programs
	$(BIN)/pytest -n $(WORKERS) --all-tiers --junitxml=$(RESULTS)/test.xml

# Every test that needs no program but Python, with a twentieth of the examples, and of the stores only the one in memory.
# `make check ONLY=webhook/fallback` runs what belongs to a folder or module, with every store: the folder of its name in
# tests/, or else the tests that import it, or else the folder of its parent.
WITH_PROGRAMS := app bench browser chaos chart cluster compose image monitoring scheduling
IN_PROCESS = $(filter-out $(WITH_PROGRAMS:%=tests/%),$(patsubst %/__init__.py,%,$(wildcard tests/*/__init__.py)))
OF_MEMORY := -k "not redis- and not valkey- and not actionlint" --ignore=tests/adapters/redis_store --ignore=tests/authentication/test_proxy_hop.py
BELONGING = $(patsubst webhook/%,tests/%,$(patsubst certs%,tests/certs%,$(ONLY:/=)))
IMPORTED = $(subst /,.,$(patsubst %.py,%,$(ONLY:/=)))
SELECTED = $(or $(wildcard $(BELONGING)),$(shell grep -rlE '^ *(from|import) $(IMPORTED)[. ]' --include='test_*.py' $(IN_PROCESS)),$(wildcard $(filter tests/%,$(patsubst %/,%,$(dir $(BELONGING))))),$(error no test belongs to $(ONLY)))
check: setup
	PODGATE_TEST_SHORT=yes $(BIN)/pytest -n 5 --junitxml=$(RESULTS)/check.xml $(if $(ONLY),$(SELECTED),$(OF_MEMORY) $(IN_PROCESS))

# Faults at random on a real control plane, and a judgement of what happened. A new seed each time, or
# `make chaos SEED=N SECONDS=S FORM=F` to repeat a run. From 600 s on it has one of the long forms. The history stays in
# .test-results/chaos/SEED.
chaos: setup
	@$(BIN)/python -m tests.cluster build
	@$(BIN)/python -m tests.chaos programs
	@$(BIN)/python -m tests.chaos run $(if $(SEED),--seed $(SEED)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(FORM),--form $(FORM))

# The image, built and run without a container engine. As root: what is missing of buildah and mmdebstrap is installed by
# apt-get. The base that the Dockerfile names is replaced by one of Debian's packages, kept in ~/.cache/podgate.
image-test: setup
	$(BIN)/python -m tests.image
	$(BIN)/pytest -s --junitxml=$(RESULTS)/image-test.xml tests/image

# The long forms of what `make test` proves in short: hours. The parts may run beside each other: `make -j3 soak`.
soak: soak-core soak-input soak-redis soak-cluster soak-load

soak-core: setup
	PODGATE_TEST_SIMULATION=3600 $(BIN)/pytest -s tests/simulation
	PODGATE_TEST_EXAMPLES=10000 $(BIN)/pytest tests/core/admission/test_pairs.py
	PODGATE_TEST_EXAMPLES=20000 $(BIN)/pytest tests/core/admission/test_document_pairs.py
	PODGATE_TEST_EXAMPLES=5000 $(BIN)/pytest tests/core/document/test_changed_services.py tests/policy_in_force/test_changed_policies.py
	PODGATE_TEST_EXAMPLES=10000 $(BIN)/pytest tests/fallback/test_fallback_bound.py
	PODGATE_TEST_EXAMPLES=1000 $(BIN)/pytest tests/core tests/cli tests/certs tests/controller tests/commands tests/fallback --ignore tests/core/admission/test_pairs.py --ignore tests/core/admission/test_document_pairs.py --ignore tests/fallback/test_fallback_bound.py

soak-input: setup
	PODGATE_TEST_EXAMPLES=100000 $(BIN)/pytest tests/server/test_request_parser.py
	PODGATE_TEST_FUZZ_SECONDS=1800 $(BIN)/pytest tests/server/test_fuzz.py
	PODGATE_TEST_GUIDED_SECONDS=3600 $(BIN)/pytest -s tests/fuzz

soak-redis: setup
	PODGATE_TEST_OPERATIONS=200000 PODGATE_TEST_RACE_SECONDS=60 PODGATE_TEST_EXAMPLES=2000 PODGATE_TEST_REDIS=all $(BIN)/pytest -s tests/contract
	PODGATE_TEST_STANDSTILL=soak $(BIN)/pytest -s tests/app/test_redis_serving.py -k stalled_redis
	PODGATE_TEST_OUTAGES=50 $(BIN)/pytest -s tests/adapters/redis_store/test_outages.py tests/adapters/redis_store/test_partitions.py
	PODGATE_TEST_FLAPPING=600 $(BIN)/pytest -s tests/adapters/redis_store/test_flapping.py
	PODGATE_TEST_FLOOD=soak $(BIN)/pytest -s tests/server/test_flood.py
	PODGATE_TEST_COLLECTOR=yes $(BIN)/pytest tests/app/test_traces_serving.py tests/adapters/test_traces.py
	PODGATE_TEST_TRIPS=200 $(BIN)/pytest -s tests/app/test_breakers_serving.py -k seen_by_the_other
	PODGATE_TEST_REDIS=all $(BIN)/pytest tests/app tests/cli/test_demo.py tests/cluster/test_shared_redis.py tests/commands/test_remote_server.py

soak-cluster: setup
	PODGATE_TEST_KILLS=20 $(BIN)/pytest -s tests/cluster/test_controller_restarts.py -k churn
	PODGATE_TEST_EXAMPLES=500 $(BIN)/pytest -s tests/cluster/test_generated_workloads.py
	PODGATE_TEST_EXAMPLES=300 $(BIN)/pytest tests/cluster/test_placement_sample.py
	PODGATE_TEST_CALLS=1000 $(BIN)/pytest tests/cluster/test_availability.py -k under_load
	PODGATE_TEST_QUEUE=soak $(BIN)/pytest -s tests/cluster/test_queue.py tests/core/controller -k "released or models"
	PODGATE_TEST_QUEUE=soak $(BIN)/pytest -s tests/cluster/test_gang_storm.py
	PODGATE_TEST_SHARES=soak $(BIN)/pytest tests/cluster/test_shares.py -k random_script
	PODGATE_TEST_SCHEDULING=soak $(BIN)/pytest -s tests/scheduling -k "at_random or of_many"
	PODGATE_TEST_SCHEDULING=soak $(BIN)/pytest -s tests/scheduling/test_slow_volumes.py
	PODGATE_TEST_REFUNDS=soak $(BIN)/pytest tests/cluster/test_refunds.py -k of_many
	PODGATE_TEST_ROLLOUT=soak $(BIN)/pytest -s tests/cluster/test_rollout_leading.py -k hurts
	PODGATE_TEST_CHAOS=600 PODGATE_TEST_CHAOS_FORM=long $(BIN)/pytest -s tests/chaos/test_chaos.py
	PODGATE_TEST_CHAOS=600 PODGATE_TEST_CHAOS_FORM=long-cluster $(BIN)/pytest -s tests/chaos/test_chaos.py
	PODGATE_TEST_PLANTED=all $(BIN)/pytest -s tests/chaos/test_planted.py
	PODGATE_TEST_ROTATION=soak $(BIN)/pytest -s tests/cluster/test_rotation.py
	PODGATE_TEST_UPGRADE=soak $(BIN)/pytest tests/cluster/test_upgrade.py
	PODGATE_TEST_ROTATION=soak $(BIN)/pytest tests/cluster/test_certificates.py -k "under_load or two_controllers"

soak-load: setup
	PODGATE_TEST_SOAK=10800 $(BIN)/pytest -s tests/soak

# Each fuzz target under coverage guidance for its part of the time: `make fuzz SECONDS=60 TARGETS="tokens outcomes"`. What
# it finds is kept in .test-results/fuzz; KEEP=--keep chooses the corpora in the repository anew.
fuzz: setup
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),600) $(KEEP) $(TARGETS)

# How many small changes of the code the tests of a folder notice. Its tools stay out of the environment.
MUTATED ?= webhook/core/breaker webhook/core/ledger webhook/core/quota
SAMPLE ?= 150
mutants: setup
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes --upgrade --target .build/mutants -r tests/mutants/requirements.txt
	$(foreach folder,$(MUTATED),nice -n 15 $(BIN)/python -m tests.mutants $(folder) --sample $(SAMPLE) &&) true

# `make bench BEFORE=REVISION` measures the server of another commit beside today's.
bench: setup
	$(BIN)/python -m tests.bench $(if $(BEFORE),--before $(BEFORE))

# Within a minute. The last line is JSON: Podgate's CPU time per review, divided by that of other webhook servers.
bench-quick: setup
	@$(BIN)/python -m tests.bench --quick

# A cluster of 5,000 nodes and 2,000 services that grows to 50,000 Pods: a quarter of an hour, and all of a small machine.
scale: setup
	$(BIN)/python -m tests.bench --only scale

# The README's pictures of the console, by a Chromium.
pictures: setup
	$(BIN)/python -m tests.browser.take_pictures

# A cluster without machines, for a person: the one that tests/cluster runs on. `eval "$(make -s controlplane-up)"`
controlplane-up: setup
	@$(BIN)/python -m tests.cluster build
	@$(BIN)/python -m tests.cluster up

controlplane-down: setup
	@$(BIN)/python -m tests.cluster down

# The second one is the image's: the same versions without the tools, and the backend that installs the project there.
lock:
	uv pip compile pyproject.toml --extra cel --group dev --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -o requirements.lock
	echo setuptools | uv pip compile pyproject.toml - --extra cel --constraints requirements.lock --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -o requirements.serve.lock
	$(MAKE) setup
	$(BIN)/python -m tests.supply_chain.licenses

# What the workflows in .github/workflows call.
VERSION = $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)
EPOCH = $(shell git log -1 --format=%ct)
NAMESPACE := podgate-system

# Of this commit, as NAME=VALUE.
variables:
	@echo "version=$(VERSION)"
	@echo "epoch=$(EPOCH)"

# The wheel, its bill of materials, the source archive and checksums in dist/, from committed files only. The image
# contains the same wheel.
dist: setup
	@$(BIN)/python -m tests.supply_chain.archives dist

# The bill of materials of an image whose file system is in the folder ROOT.
dist/podgate.cdx.json: setup
	@test -n "$(ROOT)" || { echo "error: make $@ ROOT=FOLDER, with the file system of an image" >&2; exit 1; }
	mkdir -p dist
	SOURCE_DATE_EPOCH=$(EPOCH) $(BIN)/python -m tests.image.bill_of_materials $(ROOT) > $@

# Keyless: the identity is the workflow's.
sign:
	@test -n "$(IMAGE)" && test -n "$(DIGEST)" || { echo "error: make sign IMAGE=NAME DIGEST=sha256:..." >&2; exit 1; }
	cosign sign --yes $(IMAGE)@$(DIGEST)
	cosign attest --yes --type cyclonedx --predicate dist/podgate.cdx.json $(IMAGE)@$(DIGEST)

release-check:
	@test "$(TAG)" = "v$(VERSION)" || { echo "error: the tag is $(TAG), and pyproject.toml has version $(VERSION)" >&2; exit 1; }
	@grep -q '^## \[$(VERSION)\] - ' CHANGELOG.md || { echo "error: CHANGELOG.md has no section [$(VERSION)] with a date" >&2; exit 1; }

# With the changelog's section as its text. BUNDLE is the file with the provenance of dist/.
release: release-check
	if [ -n "$$BUNDLE" ]; then cp "$$BUNDLE" dist/podgate-$(VERSION).intoto.jsonl; fi
	mkdir -p .build && sed -n '/^## \[$(VERSION)\]/,/^## \[/{/^## \[/d;p}' CHANGELOG.md > .build/notes.md
	gh release create "$(TAG)" --verify-tag --title "Podgate $(VERSION)" --notes-file .build/notes.md dist/*

# One server of another image beside those of an overlay; only with Redis: `make canary OVERLAY=FOLDER IMAGE=NAME@sha256:...`
# KUBECONFIG_TEXT, if it is set, is the content of a kubeconfig.
KUBECTL = kubectl $(if $(value KUBECONFIG_TEXT),--kubeconfig .build/kubeconfig) --namespace $(NAMESPACE)
WRITE_KUBECONFIG = @mkdir -p .build && umask 077 && if [ -n "$$KUBECONFIG_TEXT" ]; then printf '%s' "$$KUBECONFIG_TEXT" > .build/kubeconfig; fi

canary:
	@case "$(IMAGE)" in *@sha256:*) ;; *) echo "error: make canary OVERLAY=FOLDER IMAGE=NAME@sha256:..." >&2; exit 1;; esac
	@test -f "$(OVERLAY)/kustomization.yaml" || { echo "error: OVERLAY=$(OVERLAY): no folder with a kustomization.yaml" >&2; exit 1; }
	$(WRITE_KUBECONFIG)
	@mkdir -p .build/canary && printf 'resources: [../../%s]\ncomponents: [../../manifests/canary]\nimages: [{name: podgate, newName: "%s", digest: "%s"}]\n' \
	  "$(OVERLAY)" "$(firstword $(subst @, ,$(IMAGE)))" "$(lastword $(subst @, ,$(IMAGE)))" > .build/canary/kustomization.yaml
	$(KUBECTL) apply --server-side --field-manager=podgate-canary -k .build/canary
	$(KUBECTL) rollout status deployment/podgate-canary --timeout=5m

canary-down:
	$(WRITE_KUBECONFIG)
	$(KUBECTL) delete deployment/podgate-canary --ignore-not-found

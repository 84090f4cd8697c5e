# Everything runs in .venv, which is created from the hashed lock at first use. This needs Python 3.11,
# make and access to the package index. Spark jobs, peers and Java clients also need Java 17 (and Maven).

SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3.11
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
CODE := actors wire storage assignors raydp_jobs loadtest
PYTEST := $(PY) -m pytest
# Four workers, because unit tests wait for half of their time, and other tests for most of it. Two
# workers if each starts a cluster, which uses both cores. The tests of a file stay in one worker if
# they share results or a cluster.
COMPUTING := -n 4 --dist loadfile
CLUSTERS := -n 2 --dist loadfile
WAITING := -n 4 --dist worksteal
SESSIONS := -n 4 --dist loadfile
PROPERTY_TESTS := tests/property tests/fuzz tests/golden tests/compat
NODES_TESTS := tests/cluster/test_nodes.py tests/cluster/test_lost_voter.py tests/cluster/test_in_turn.py tests/cluster/test_parallel_nodes.py
GROUPS_TESTS := tests/cluster/test_groups_live.py tests/cluster/test_coordinator_kill.py
CLUSTER_TESTS := tests/cluster $(NODES_TESTS:%=--ignore=%) $(GROUPS_TESTS:%=--ignore=%)

.PHONY: help demo demo-clients test long check fmt lint types layers imports unit property explore sim sim-planted sim-campaign mutants cluster groups nodes faults rolling damage scale scale-controller scale-connections conformance \
        differential peers malformed deploy spark spark-peers spark-copying loadtest loadtest-agreement load-scenarios checker bench replicated parallel-bench quorum-states metrics-cost transactions-bench clients-bench copying client-kills load-faults groups-load spark-bench cleaning micro golden site lock clean install

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 16

install: $(STAMP) ## create the environment only

$(STAMP): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 is needed: $(PYTHON) was not found. Set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "Python 3.11 is needed, $(PYTHON) is $$($(PYTHON) -V 2>&1)"; exit 1; }
	@echo "installing into $(VENV) (once, about two minutes)"
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(PY) -m compileall -q raylog $(CODE) || true
	@touch $@

demo: $(STAMP) ## flights through Spark, exactly once, with two kills, compared with pandas (needs Java 17); MONTHS=2, or 12 for all
	$(PY) -m raylog.demo pipeline --months $(or $(MONTHS),2)

demo-clients: $(STAMP) ## the same flights through two Kafka clients, without Java
	$(PY) -m raylog.demo clients

test: check ## all tests that must pass, within 10 minutes
	$(PYTEST) $(COMPUTING) -m "not long" tests/unit $(PROPERTY_TESTS) tests/sim
	$(PYTEST) $(CLUSTERS) -m "not long" $(CLUSTER_TESTS)
	$(PYTEST) $(WAITING) -m "not long" tests/conformance
	$(PYTEST) $(SESSIONS) tests/differential

long: $(STAMP) ## the tests that make test omits: larger inputs, more examples, seeds and kills; half an hour
	$(PYTEST) $(COMPUTING) -m long tests/unit $(PROPERTY_TESTS) tests/sim
	$(PYTEST) $(COMPUTING) -m "not long" --hypothesis-profile many tests/property
	$(PYTEST) $(CLUSTERS) -m long $(CLUSTER_TESTS)
	$(PYTEST) $(SESSIONS) -m long tests/conformance

check: $(STAMP) ## style, types, layers, and that every test can be imported
	@$(MAKE) --no-print-directory --output-sync -j 2 types lint layers imports

fmt: $(STAMP) ## format the code and fix what can be fixed automatically
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

lint: $(STAMP)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .

types: $(STAMP)
	$(VENV)/bin/mypy -p raylog -p tests -p bench

layers: $(STAMP)
	$(VENV)/bin/lint-imports

imports: $(STAMP) # what pytest compiles for it is kept for all that run tests after it
	@set -o pipefail; $(PYTEST) --collect-only -qq tests | awk '!/^tests\/.*: [0-9]+$$/'

unit: $(STAMP) ## unit tests of rules, codecs and storage, without Ray
	$(PYTEST) $(COMPUTING) tests/unit

property: $(STAMP) ## property tests, a part of the fuzzing, golden frames, data directories of earlier builds
	$(PYTEST) $(COMPUTING) $(PROPERTY_TESTS)

quorum-states: $(STAMP) ## explore all orders of events in a larger metadata quorum, up to STATES=1000000; half an hour
	$(PY) -m tests.worlds.quorum --most $(or $(STATES),1000000)

explore: $(STAMP) ## property tests with new examples for SECONDS=170; prints failures and keeps them in .cache/explored
	$(PY) -m tests.explore --seconds $(or $(SECONDS),170) $(if $(KEEP),--keep $(KEEP))

sim: $(STAMP) ## simulate clusters in virtual time; SEED=7 runs one seed, KIND=transactions SEED=7 one of another kind
	KIND=$(KIND) SEED=$(SEED) $(PYTEST) $(COMPUTING) tests/sim

sim-planted: $(STAMP) ## check that every planted mistake is found; writes the seeds into the docs; three minutes
	PLANTED=all $(PYTEST) tests/sim/test_planted.py -v

sim-campaign: $(STAMP) ## simulate new seeds of KIND=plain for SECONDS=600; prints the coverage, totals are kept in .cache
	$(VENV)/bin/raylog sim --kind $(or $(KIND),plain) --campaign $(or $(SECONDS),600) $(if $(STATE),--state $(STATE))

mutants: $(STAMP) ## mutation tests: COUNT=20 mistakes drawn from SEED=1 and the tests that find them; LIST=1 only lists them; STAGES=covering runs only unit tests that execute them
	$(PY) -m tests.mutants --seed $(or $(SEED),1) --count $(or $(COUNT),20) $(if $(LIST),--list) $(if $(STAGES),--stages $(STAGES))

cluster: $(STAMP) ## tests of actors on a local Ray
	$(PYTEST) $(CLUSTERS) $(CLUSTER_TESTS)

groups: $(STAMP) ## groups of real clients that join, leave and die; the coordinator is killed 40 times
	$(PYTEST) $(GROUPS_TESTS)

groups-load: $(STAMP) ## 2,000 heartbeating members and commits, compared with Apache Kafka (needs Java and Maven)
	$(PY) -m bench.groups

differential: $(STAMP) ## recorded sessions of groups and replicas, compared with the answers of Apache Kafka
	$(PYTEST) $(SESSIONS) tests/differential

peers: $(STAMP) ## check that a live Apache Kafka still gives these answers (needs Java, Maven and an idle machine)
	$(PYTEST) tests/peers

nodes: $(STAMP) ## loss of a whole Ray node and of a voter's directory, rolling restarts; waits for timeouts, so not in make test
	for test in $(NODES_TESTS); do $(PYTEST) $$test || exit; done

faults: $(STAMP) ## three Ray nodes under random faults for SECONDS=600, SEED=1, KINDS=kill-leader TIMES=40, with the history checker
	$(PY) -m tests.cluster.faults --seconds $(or $(SECONDS),600) --seed $(or $(SEED),1) $(if $(KINDS),--kinds $(KINDS)) $(if $(TIMES),--times $(TIMES))

rolling: $(STAMP) ## restart three brokers in turn and move 20 partitions under load, with the history checker
	$(PY) -m tests.cluster.rolling

copying: $(STAMP) ## exactly-once on three Ray nodes under kills: RECORDS=100000 RATE=1000 KILL_EVERY=10 CLIENTS=confluent|java|mixed
	$(PY) -m tests.copying.clients --records $(or $(RECORDS),100000) --records-per-s $(or $(RATE),1000) \
	  --kill-every $(or $(KILL_EVERY),10) --clients $(or $(CLIENTS),mixed) --seed $(or $(SEED),1)

load-faults: $(STAMP) ## a million records through a broker that loses one, and through one that is late once a minute; five minutes
	$(PY) -m tests.support.planted_load

client-kills: $(STAMP) ## our client's guarantees while brokers, coordinators and clients are killed for SECONDS=600, SEED=1, with the history checker
	$(PY) -m tests.cluster.client_kills --seconds $(or $(SECONDS),600) --seed $(or $(SEED),1)

deploy: $(STAMP) ## five machines as namespaces and `ray up deploy/local.yaml` over ssh (as root; names missing packages); STEPS=all, or a list such as up,brokers,machine-away; HEAD_AWAY=30
	$(PY) -m tests.machines $(if $(STEPS),--steps $(STEPS)) $(if $(MACHINES),--machines $(MACHINES)) $(if $(HOLD),--hold)

damage: $(STAMP) ## kill a broker ROUNDS=30 times and damage its replicas, in 40 ways each; SEED=1
	RAYLOG_DAMAGE_ROUNDS=$(or $(ROUNDS),30) RAYLOG_DAMAGE_SEED=$(or $(SEED),1) $(PYTEST) tests/property/test_damage.py

scale: $(STAMP) ## 1,000 topics, and 1,000 partitions of one topic, on one broker; prints figures
	RAYLOG_SCALE=1000 $(PYTEST) tests/cluster/test_scale.py

scale-controller: $(STAMP) ## 100 brokers and 100,000 partitions in one process: the cost of changes and of a broker's loss; TOPICS=100
	$(PY) -m bench.scale $(if $(TOPICS),--topics $(TOPICS))

scale-connections: $(STAMP) ## 500 busy and 10,000 idle connections on one broker; needs 16,500 open files
	$(PY) -m bench.connections

conformance: $(STAMP) ## other Kafka clients against the embedded broker
	$(PYTEST) $(WAITING) tests/conformance

spark: $(STAMP) ## the Spark source and the exactly-once sink (needs Java 17; takes minutes, so not in make test)
	$(PYTEST) tests/spark

spark-peers: $(STAMP) ## the same, and the sink against Apache Kafka (also needs Maven)
	RAYLOG_SPARK_PEERS=1 $(PYTEST) tests/spark

spark-copying: $(STAMP) ## a streaming job on three Ray nodes under kills: ROWS=1000000 KILLS=30 JOB=copy|aggregate SINK=raylog|kafka
	$(PY) -m tests.copying.spark --rows $(or $(ROWS),1000000) --kills $(or $(KILLS),30) \
	  --batch-rows $(or $(BATCH_ROWS),16000) --job $(or $(JOB),copy) --sink $(or $(SINK),raylog) $(if $(SEED),--seed $(SEED))

malformed: $(STAMP) ## send a live gateway FRAMES=100000 malformed frames, then REQUESTS=1000000 well-formed extreme ones; SEED=1
	$(PY) -m tests.cluster.malformed --frames $(or $(FRAMES),100000)
	$(PY) -m tests.fuzz --requests $(or $(REQUESTS),1000000) --seed $(or $(SEED),1)

checker: $(STAMP) ## time and memory of the history checker for a million operations
	$(PY) -m tests.checker.large

loadtest: $(STAMP) ## run SCENARIO=steady on HOST=127.0.0.1:9092, or on an embedded broker; `raylog loadtest --list` lists scenarios
	$(VENV)/bin/raylog loadtest $(or $(SCENARIO),steady) $(if $(HOST),--bootstrap $(HOST)) --out build/loadtest

loadtest-agreement: $(STAMP) ## check that 4 processes and 3 Ray nodes measure the same as one process, ROUNDS=5; 20 minutes on an idle machine
	$(PY) -m bench.load_agreement --rounds $(or $(ROUNDS),5)

load-scenarios: $(STAMP) ## the shipped load tests on 1 and 3 brokers and on Apache Kafka (needs Java and Maven); SCENARIO=steady for one, LONGEST=1800 for the whole soak
	$(PY) -m bench.scenarios --longest $(or $(LONGEST),300) $(if $(SCENARIO),--only $(SCENARIO)) $(if $(SYSTEM),--system $(SYSTEM))

bench: $(STAMP) ## Raylog and Apache Kafka in one run, as ratios (needs Java and Maven)
	$(PY) -m bench

replicated: $(STAMP) ## three brokers, three replicas, acks=all, compared with Apache Kafka (needs Java and Maven)
	$(PY) -m bench.replicated --write-docs

clients-bench: $(STAMP) ## compare Python's Kafka clients, on Apache Kafka and Raylog (needs Java and Maven; about an hour); ROUNDS=10
	$(PY) -m bench.client_libraries --rounds $(or $(ROUNDS),10) --write-docs

metrics-cost: $(STAMP) ## the CPU time that metrics add to a request; fails above 2 %; STARTS=10 brokers; ten minutes
	$(PY) -m bench.metrics_cost --starts $(or $(STARTS),10)

parallel-bench: $(STAMP) ## workers that sleep 10 ms per record, on one partition, compared with bare threads and tasks
	$(PY) -m bench.parallel

transactions-bench: $(STAMP) ## transactional produce throughput compared with Apache Kafka (needs Java and Maven); BROKERS=1 or 3
	$(PY) -m bench.transactions --brokers $(or $(BROKERS),1)

spark-bench: $(STAMP) ## Spark's Kafka source and both sinks, on Raylog and Apache Kafka (needs Java and Maven)
	$(PY) -m bench.spark --write-docs

cleaning: $(STAMP) ## clean three compacted logs of 1 GiB: rate, memory, and the effect on other clients
	$(PY) -m bench.cleaning run

micro: $(STAMP) ## codec and log alone
	$(PY) -m bench.micro

golden: $(STAMP) ## capture the golden frames again (needs Java and Maven); review the diff
	$(PY) -m tests.golden.capture
	for of in '' _replicas _batches _held _listeners _transactions _unserved; do $(PY) -m tests.differential.record$$of || exit 1; done

site: $(STAMP) ## build the documents and the API reference in build/site
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet

lock: ## resolve requirements.lock again from pyproject.toml
	$(PYTHON) -m venv .venv-lock && .venv-lock/bin/pip install --quiet uv
	.venv-lock/bin/uv pip compile --quiet --upgrade --generate-hashes --no-header --no-emit-index-url \
	  --no-emit-find-links --python-version 3.11 --extra all --extra docs --extra dev \
	  pyproject.toml -o requirements.lock
	rm -rf .venv-lock

clean: ## remove the environment and all caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .cache/demo build dist *.egg-info

# Everything runs in .venv, made from the hashed lock on first use. Needs Python 3.11, make and the
# network to the package index; the Spark jobs, peers and Java clients also need Java 17 (and Maven).

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
# Three workers, because a third of the time of unit tests is waiting; four for tests that mostly wait;
# two where each starts a cluster of its own, which takes both cores. Files stay whole where tests
# share what they computed, or a cluster.
COMPUTING := -n 3 --dist loadfile
CLUSTERS := -n 2 --dist loadfile
WAITING := -n 4 --dist worksteal
SESSIONS := -n 4 --dist loadfile
PROPERTY_TESTS := tests/property tests/fuzz tests/golden tests/compat
NODES_TESTS := tests/cluster/test_nodes.py tests/cluster/test_lost_voter.py tests/cluster/test_in_turn.py tests/cluster/test_parallel_nodes.py
GROUPS_TESTS := tests/cluster/test_groups_live.py tests/cluster/test_coordinator_kill.py
CLUSTER_TESTS := tests/cluster $(NODES_TESTS:%=--ignore=%) $(GROUPS_TESTS:%=--ignore=%)

.PHONY: help demo demo-clients test check fmt lint types layers unit property explore sim sim-planted sim-campaign mutants cluster groups nodes faults rolling damage scale scale-controller scale-connections conformance \
        differential peers malformed deploy spark spark-peers spark-copying loadtest loadtest-agreement load-scenarios checker bench replicated parallel-bench metrics-cost transactions-bench clients-bench copying client-kills load-faults groups-load spark-bench cleaning micro golden site lock clean install

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 16

install: $(STAMP) ## the environment alone

$(STAMP): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 is needed: $(PYTHON) was not found. Set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "Python 3.11 is needed, $(PYTHON) is $$($(PYTHON) -V 2>&1)"; exit 1; }
	@echo "installing into $(VENV) (once, about two minutes)"
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(PY) -m compileall -q raylog $(CODE) || true
	@touch $@

demo: $(STAMP) ## flights through Spark, exactly once, under kills, beside pandas (needs Java 17); MONTHS=2, 12 for all
	$(PY) -m raylog.demo pipeline --months $(or $(MONTHS),2)

demo-clients: $(STAMP) ## the same flights through two Kafka clients; no Java
	$(PY) -m raylog.demo clients

test: check ## everything that must pass; within 20 minutes
	$(PYTEST) $(COMPUTING) tests/unit $(PROPERTY_TESTS) tests/sim
	$(PYTEST) $(CLUSTERS) $(CLUSTER_TESTS)
	$(PYTEST) $(WAITING) tests/conformance
	$(PYTEST) $(SESSIONS) tests/differential

check: $(STAMP) ## style, types, layers
	@$(MAKE) --no-print-directory --output-sync -j 2 types lint layers

fmt: $(STAMP) ## format the code
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

lint: $(STAMP)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .

types: $(STAMP)
	$(VENV)/bin/mypy -p raylog -p tests -p bench

layers: $(STAMP)
	$(VENV)/bin/lint-imports

unit: $(STAMP) ## machines, codecs, storage: no Ray
	$(PYTEST) $(COMPUTING) tests/unit

property: $(STAMP) ## Hypothesis; a slice of the fuzzer; golden frames; directories of earlier commits
	$(PYTEST) $(COMPUTING) $(PROPERTY_TESTS)

explore: $(STAMP) ## property tests with new examples for SECONDS=170; failures are printed and kept in .cache/explored
	$(PY) -m tests.explore --seconds $(or $(SECONDS),170) $(if $(KEEP),--keep $(KEEP))

sim: $(STAMP) ## whole clusters under virtual time; make sim SEED=7 for one, KIND=transactions SEED=7 for one of another kind
	KIND=$(KIND) SEED=$(SEED) $(PYTEST) $(COMPUTING) tests/sim

sim-planted: $(STAMP) ## every planted mistake must be found; prints its seed and writes it into the docs; an hour or so
	PLANTED=all $(PYTEST) tests/sim/test_planted.py -v

sim-campaign: $(STAMP) ## new seeds of KIND=plain for SECONDS=600; prints what was covered, sums up over runs in .cache
	$(VENV)/bin/raylog sim --kind $(or $(KIND),plain) --campaign $(or $(SECONDS),600) $(if $(STATE),--state $(STATE))

mutants: $(STAMP) ## COUNT=20 small mistakes drawn from SEED=1, and the test that finds each; LIST=1 lists them only; STAGES=covering runs only unit tests that execute them
	$(PY) -m tests.mutants --seed $(or $(SEED),1) --count $(or $(COUNT),20) $(if $(LIST),--list) $(if $(STAGES),--stages $(STAGES))

cluster: $(STAMP) ## actors on a local Ray
	$(PYTEST) $(CLUSTERS) $(CLUSTER_TESTS)

groups: $(STAMP) ## groups of real clients that come, go, die; the coordinator killed 40 times
	$(PYTEST) $(GROUPS_TESTS)

groups-load: $(STAMP) ## 2,000 heartbeating members and commits, beside Apache Kafka (needs Java and Maven)
	$(PY) -m bench.groups

differential: $(STAMP) ## scripted sessions of groups and about replicas, as Apache Kafka answered them
	$(PYTEST) $(SESSIONS) tests/differential

peers: $(STAMP) ## whether a live Apache Kafka still answers so (needs Java and Maven; on an idle machine)
	$(PYTEST) tests/peers

nodes: $(STAMP) ## the loss of a whole Ray node, of a voter's directory; brokers restarted in turn: waits for timeouts, so not in make test
	for test in $(NODES_TESTS); do $(PYTEST) $$test || exit; done

faults: $(STAMP) ## three Ray nodes under random faults for SECONDS=600, SEED=1, KINDS=kill-leader TIMES=40; the history checker judges
	$(PY) -m tests.cluster.faults --seconds $(or $(SECONDS),600) --seed $(or $(SEED),1) $(if $(KINDS),--kinds $(KINDS)) $(if $(TIMES),--times $(TIMES))

rolling: $(STAMP) ## three brokers restarted in turn, 20 partitions moved, under load; the history checker judges
	$(PY) -m tests.cluster.rolling

copying: $(STAMP) ## exactly-once on three Ray nodes under kills: RECORDS=100000 RATE=1000 KILL_EVERY=10 CLIENTS=confluent|java|mixed
	$(PY) -m tests.cluster.copying --records $(or $(RECORDS),100000) --records-per-s $(or $(RATE),1000) \
	  --kill-every $(or $(KILL_EVERY),10) --clients $(or $(CLIENTS),mixed) --seed $(or $(SEED),1)

load-faults: $(STAMP) ## a million records through a broker that loses one, and one that is late once a minute: five minutes
	$(PY) -m tests.support.planted_load

client-kills: $(STAMP) ## our client's promises: brokers, coordinators and clients killed for SECONDS=600, SEED=1; the history checker judges
	$(PY) -m tests.cluster.client_kills --seconds $(or $(SECONDS),600) --seed $(or $(SEED),1)

deploy: $(STAMP) ## five machines as namespaces, `ray up deploy/local.yaml` over ssh (root; says which packages are missing); STEPS=all, or some as up,brokers,machine-away; HEAD_AWAY=30
	$(PY) -m tests.machines $(if $(STEPS),--steps $(STEPS)) $(if $(MACHINES),--machines $(MACHINES)) $(if $(HOLD),--hold)

damage: $(STAMP) ## ROUNDS=30 deaths of a broker whose replicas come back damaged, 40 kinds each; SEED=1
	RAYLOG_DAMAGE_ROUNDS=$(or $(ROUNDS),30) RAYLOG_DAMAGE_SEED=$(or $(SEED),1) $(PYTEST) tests/property/test_damage.py

scale: $(STAMP) ## 1,000 topics, and 1,000 partitions of one topic, on one broker; prints figures
	RAYLOG_SCALE=1000 $(PYTEST) tests/cluster/test_scale.py

scale-controller: $(STAMP) ## 100 brokers and 100,000 partitions in one process: what changes and a broker's loss cost; TOPICS=100
	$(PY) -m bench.scale $(if $(TOPICS),--topics $(TOPICS))

scale-connections: $(STAMP) ## 500 busy connections beside 10,000 idle ones, on one broker; 16,500 open files
	$(PY) -m bench.connections

conformance: $(STAMP) ## foreign clients against the embedded broker
	$(PYTEST) $(WAITING) tests/conformance

spark: $(STAMP) ## the Spark source and the exactly-once sink (needs Java 17; minutes, so not in make test)
	$(PYTEST) tests/spark

spark-peers: $(STAMP) ## the same, and the sink against Apache Kafka (needs Maven too)
	RAYLOG_SPARK_PEERS=1 $(PYTEST) tests/spark

spark-copying: $(STAMP) ## a streaming job on three Ray nodes under kills: ROWS=1000000 KILLS=30 JOB=copy|aggregate SINK=raylog|kafka
	$(PY) -m tests.spark.copying --rows $(or $(ROWS),1000000) --kills $(or $(KILLS),30) \
	  --batch-rows $(or $(BATCH_ROWS),16000) --job $(or $(JOB),copy) --sink $(or $(SINK),raylog) $(if $(SEED),--seed $(SEED))

malformed: $(STAMP) ## FRAMES=100000 malformed frames at a live gateway, then REQUESTS=1000000 well-formed extreme ones, SEED=1
	$(PY) -m tests.cluster.malformed --frames $(or $(FRAMES),100000)
	$(PY) -m tests.fuzz --requests $(or $(REQUESTS),1000000) --seed $(or $(SEED),1)

checker: $(STAMP) ## the history checker on a million operations: time and memory
	$(PY) -m tests.checker.large

loadtest: $(STAMP) ## a scenario on HOST=127.0.0.1:9092, or on an embedded broker: SCENARIO=steady; raylog loadtest --list
	$(VENV)/bin/raylog loadtest $(or $(SCENARIO),steady) $(if $(HOST),--bootstrap $(HOST)) --out build/loadtest

loadtest-agreement: $(STAMP) ## whether 4 processes and 3 Ray nodes measure what one process does, ROUNDS=5; on an idle machine, 20 minutes
	$(PY) -m bench.load_agreement --rounds $(or $(ROUNDS),5)

load-scenarios: $(STAMP) ## the shipped load tests on 1 and 3 brokers and on Apache Kafka (needs Java and Maven); SCENARIO=steady for one, LONGEST=1800 for a whole soak
	$(PY) -m bench.scenarios --longest $(or $(LONGEST),300) $(if $(SCENARIO),--only $(SCENARIO)) $(if $(SYSTEM),--system $(SYSTEM))

bench: $(STAMP) ## Apache Kafka and Raylog in one run, as ratios (needs Java and Maven)
	$(PY) -m bench

replicated: $(STAMP) ## three brokers, three copies, acks=all, beside Apache Kafka (needs Java and Maven)
	$(PY) -m bench.replicated --write-docs

clients-bench: $(STAMP) ## Python's Kafka clients beside one another, on Apache Kafka and Raylog (needs Java and Maven; an hour or so); ROUNDS=10
	$(PY) -m bench.client_libraries --rounds $(or $(ROUNDS),10) --write-docs

metrics-cost: $(STAMP) ## the CPU time that metrics add to a request; fails above 2 %; STARTS=10 brokers; ten minutes
	$(PY) -m bench.metrics_cost --starts $(or $(STARTS),10)

parallel-bench: $(STAMP) ## workers that sleep 10 ms a record, on one partition, beside bare threads and tasks
	$(PY) -m bench.parallel

transactions-bench: $(STAMP) ## transactional produce throughput beside Apache Kafka (needs Java and Maven); BROKERS=1 or 3
	$(PY) -m bench.transactions --brokers $(or $(BROKERS),1)

spark-bench: $(STAMP) ## Spark's Kafka source and both sinks, on Raylog and Apache Kafka (needs Java and Maven)
	$(PY) -m bench.spark --write-docs

cleaning: $(STAMP) ## three compacted logs of 1 GiB cleaned: rate, memory, and what other clients feel of it
	$(PY) -m bench.cleaning run

micro: $(STAMP) ## codec and log alone
	$(PY) -m bench.micro

golden: $(STAMP) ## capture golden frames again (needs Java and Maven); read the diff
	$(PY) -m tests.golden.capture
	$(PY) -m tests.differential.record
	$(PY) -m tests.differential.record_replicas

site: $(STAMP) ## the documents and the API as pages in build/site
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet

lock: ## resolve the lock again from pyproject.toml
	$(PYTHON) -m venv .venv-lock && .venv-lock/bin/pip install --quiet uv
	.venv-lock/bin/uv pip compile --quiet --upgrade --generate-hashes --no-header --no-emit-index-url \
	  --no-emit-find-links --python-version 3.11 --extra all --extra docs --extra dev \
	  pyproject.toml -o requirements.lock
	rm -rf .venv-lock

clean: ## remove the environment and all caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .cache/demo build dist *.egg-info

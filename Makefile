# Bare make prints this help. Tools are pinned here and run through go run: Go and make are all a machine needs.
.DEFAULT_GOAL := help
SHELL := bash

MODULES := $(shell sed -n 's|^[[:space:]]*\./||p' go.work)
COMMANDS := $(dir $(wildcard services/*/cmd/*/main.go))
GOLANGCI := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOVULNCHECK := go run golang.org/x/vuln/cmd/govulncheck@v1.9.0

SEEDS ?= 20
FIRST ?= 1

export CGO_ENABLED ?= 0

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build every command into bin/
	go build -trimpath -o bin/ $(addprefix ./,$(COMMANDS))

.PHONY: demo
demo: build ## train on six processes, break things, show that it heals (ARGS= for reknit dev)
	bin/reknit dev $(ARGS)

.PHONY: demo-secured
demo-secured: build ## have two institutions train by their kits; then a kit that nobody lists, a revoked node, a removed institution
	deploy/demo-secured

# The Python of the tests: PYTHON=, or else the one that .ci/python made, or python3.
WITH_PYTHON = PYTHON="$$(.ci/python)"

# with_pytorch COMMAND runs a command with a Python that has PyTorch, which is installed if need be; if it cannot be had, it says so.
with_pytorch = if found=$$(.ci/python torch); then PYTHON=$$found $1; else echo "$@: SKIPPED: there is no PyTorch, as said above"; fi

.PHONY: test
test: ## run every fast test of every module (PYTHON= with PyTorch, else that of .ci/python; without PyTorch some are skipped)
	$(WITH_PYTHON) go test -vet=off -timeout 15m work # make lint vets
	go test -count=1 ./tests/architecture ./tests/contract # what they read lies in other modules, which the cache does not see

.PHONY: race
race: ## run the same tests under the race detector (needs a C compiler)
	$(WITH_PYTHON) CGO_ENABLED=1 go test -race -timeout 15m work

.PHONY: test-python
test-python: ## run the tests of the Python files (PYTHON= as for test)
	python=$$(.ci/python) && cd services/agent/python && "$$python" -X faulthandler -W ignore::ResourceWarning -m unittest

.PHONY: chaos
chaos: build ## kill, join and cut at random on real processes (SEEDS= how many, FIRST= first seed, JSON= file of figures)
	go run ./tests/chaos -first $(FIRST) -seeds $(SEEDS) $(if $(JSON),-json $(JSON))

.PHONY: chaos-cluster
chaos-cluster: build ## kill, pause and cut off servers, copies of services and trainers (MINUTES= how long, SEED= of what is struck)
	go run ./tests/chaos-cluster -minutes $(or $(MINUTES),10) -seed $(or $(SEED),1)

.PHONY: test-upgrade
test-upgrade: build ## upgrade a running cluster, process by process, from an earlier build (FROM= its tag or commit, else the oldest that can be)
	deploy/test-upgrade $(FROM)

.PHONY: drills
drills: build ## have failures that once lost a healthy job strike real processes (DRILLS= names, else all)
	go run ./tests/drills $(DRILLS)

.PHONY: test-object-store
test-object-store: build ## move state on every path between real processes, and see that all of it comes from object stores (PYTHON= one with torch)
	go run ./tests/objectstore -python "$$(.ci/python torch || .ci/python)"

.PHONY: ledger
ledger: ## check on processes that come and go that each sample is trained once (RUNS= how many, FIRST= first seed)
	cd tests && go test ./workers -count=1 -timeout 1h -v -run EverySample -runs $(or $(RUNS),10) -first $(FIRST)

.PHONY: simulate
simulate: ## run the five machines in simulated worlds (RUNS= how many, FIRST= first seed, VERBOSE=1 for their stories, DIGEST= a file for a hash of each seed's log)
	go run ./tests/simulation -first $(FIRST) -runs $(or $(RUNS),1000) $(if $(VERBOSE),-verbose) $(if $(DIGEST),-digest "$(DIGEST)")

.PHONY: simulate-builds
simulate-builds: ## run worlds with two builds side by side, exchanged forward and back (RUNS=, FIRST=, FROM= the earlier build, as for test-upgrade)
	earlier=$$(tests/simulation/builds/make $(FROM)) && if [ -n "$$earlier" ]; then \
		go test -count=1 ./tests/simulation/scenarios -run Scenarios/builds -earlier "$$earlier" && \
		go run ./tests/simulation -first $(FIRST) -runs $(or $(RUNS),300) -earlier "$$earlier"; fi

.PHONY: simulate-planted
simulate-planted: ## plant each mistake of tests/simulation/planted and run seeds until one sees it (PLANTED= names, else all; WITHIN=60s begins no other after it)
	go run ./tests/simulation/planted $(if $(WITHIN),-within $(WITHIN)) $(PLANTED)

.PHONY: test-lies
test-lies: ## have a node of the simulated world lie in each field of whatever it says, in each way
	cd tests && go test ./simulation/world -count=1 -timeout 3h -v -run WhoLies -lies

.PHONY: fuzz
fuzz: ## feed each decoder and validator with what nobody would send (TIME= each, TARGETS= a regular expression, else all)
	go run ./tests/fuzz -time $(or $(TIME),10s) -targets '$(TARGETS)'

.PHONY: conformance
conformance: ## solve the sample cases of a folder and judge the answers (CASES= the folder)
	go run ./tests/conformance -cases $(or $(CASES),$(error CASES= is required: the folder of the cases))

.PHONY: bench-planner
bench-planner: ## measure the planner beside Chameleon's Algorithm 1 (JSON= file for the rows, CASES= folder of networks)
	go run ./tests/bench/planner -json "$(JSON)" -cases "$(CASES)"

.PHONY: bench-restorer
bench-restorer: ## measure the restorer beside scipy and the papers' greedy algorithms (JSON= file for the rows, CASES= folder of fetch.json)
	@found=$$(.ci/python scipy || .ci/python) && PYTHON=$$found go run ./tests/bench/restorer -json "$(JSON)" -cases "$(CASES)"

.PHONY: bench-negotiator
bench-negotiator: build ## measure what a change costs the control plane (NODES= how many, with commas, TRIALS= of each change, ARGS="-servers 3")
	go run ./tests/bench/negotiator $(if $(NODES),-nodes $(NODES) -herds "") $(if $(TRIALS),-trials $(TRIALS)) $(ARGS)

.PHONY: bench-herd
bench-herd: build ## have trainers come to a secured installation at once, over TLS: who is admitted, who refused and why (NODES= how many)
	go run ./tests/bench/negotiator -at-once $(or $(NODES),10000)

.PHONY: bench-monitor
bench-monitor: build ## measure the failure detector on a model of a WAN beside others, and what 10,000 heartbeats a second cost (ARGS="-days 4 -nodes 0")
	go run ./tests/bench/monitor $(ARGS)
	go test ./services/monitor -run '^$$' -bench ADeathThatShows -benchtime 1x
	cd tests && go test ./bench/monitor/gossip -count=1 -timeout 2h -v -hours 3

.PHONY: bench-days
bench-days: ## simulate days of failures: what is lost, what grows, how full stores get, training time (NODES=, DAYS=, FAILURES=1,10,100)
	go run ./tests/bench/days -nodes $(or $(NODES),100) -days $(or $(DAYS),10) -failures $(or $(FAILURES),1)

.PHONY: bench-bytes
bench-bytes: ## put and fetch parts beside plain TCP and the client library (JSON= file for the rows)
	go run ./tests/bench/bytes -json "$(JSON)"

.PHONY: bench-links
bench-links: ## measure a join over uneven links beside other policies (root; ARGS="-states ... -seeds ...", JSON= file for the rows)
	go run ./tests/bench/links -json "$(JSON)" $(ARGS)

.PHONY: bench-join
bench-join: ## measure what a join costs the others, layers moving while training goes on and while all are paused (root; JSON= file for the rows)
	go run ./tests/bench/join -json "$(JSON)"

.PHONY: demo-pytorch
demo-pytorch: build ## train a small GPT with PyTorch on four processes, break things, compare with an undisturbed run
	@$(call with_pytorch,go run ./tests/torch/demo)

.PHONY: soak
soak: build ## have hundreds of failures of every kind strike a PyTorch job, one after the other (FAILURES=, FOR= 30m at most, SEED=, ONLY= parts of names, REPORT= file)
	@$(call with_pytorch,go run ./tests/torch/soak -failures $(or $(FAILURES),300) -for $(or $(FOR),24h) -seed $(or $(SEED),1) -only "$(ONLY)" -report "$(REPORT)")

.PHONY: bench-recovery
bench-recovery: build ## measure failures, leaves and joins of a PyTorch job beside torchrun (N= runs, JSON= file for the rows)
	@$(call with_pytorch,go run ./tests/bench/recovery -n $(or $(N),5) -json "$(JSON)")

.PHONY: bench-retention
bench-retention: build ## measure which share of its throughput each living process keeps after a loss (ARGS="-steps 20", JSON= file for the row)
	@found=$$(.ci/python torch || .ci/python) && PYTHON=$$found go run ./tests/bench/retention -json "$(JSON)" $(ARGS)

.PHONY: bench-estimate
bench-estimate: build ## measure by how much predicted steps are off, before and after a kill, and what measuring costs (PYTHON= one with PyTorch, ONLY= a word of a row)
	@$(call with_pytorch,$$found tests/bench/estimate/hooks.py && $$found tests/bench/estimate/estimate.py --only "$(ONLY)")

.PHONY: bench-big
bench-big: build ## measure joins, leaves and kills of GPT-2 124M or 355M with PyTorch (ARGS="-model 355M -nodes 2 -joins 0")
	@$(call with_pytorch,go run ./tests/bench/big $(ARGS))

.PHONY: images
images: ## build the container images, and write what each is made of, as CycloneDX (deploy/images/; GNU tar)
	deploy/build
	deploy/sbom

.PHONY: test-images
test-images: ## build the images twice, in two places, and compare them byte by byte
	deploy/test-images

.PHONY: up
up: ## start NATS, the services and trainers with docker compose (WORDS="cluster secured": three servers, two copies each, keys)
	deploy/up $(WORDS)

.PHONY: down
down: ## stop what make up started
	deploy/down

.PHONY: test-compose
test-compose: ## kill containers of the compose deployment one by one and compare the digests (WORDS= which, as make up)
	deploy/test-compose $(WORDS)

.PHONY: test-cluster
test-cluster: ## do so with three servers and two copies of each service: open, and secured with the server of a site
	deploy/test-compose cluster
	deploy/test-compose cluster secured site

.PHONY: test-kubernetes
test-kubernetes: ## hold deploy/kubernetes against Kubernetes' own types and its rules for restricted pods, without a cluster
	@cd tests/kubernetes && export GOWORK=off && { go mod download 2>/dev/null || { \
		echo "test-kubernetes: SKIPPED: its modules cannot be had (no module proxy?)"; exit 0; }; } && go test ./... -count=1

.PHONY: test-security
test-security: ## make every attempt of the attack matrix on a secured installation, and count what became of them
	cd tests && go test ./security -count=1 -timeout 30m -v -run EveryAttack -full

.PHONY: test-faults
test-faults: ## break sources, links, stores and the destination during transfers (root)
	go run ./tests/faults

.PHONY: test-scripts
test-scripts: build ## run wrong scripts, and see that each is told what is wrong within two minutes (ONLY= one of them)
	go run ./tests/scripts -python "$$(.ci/python)"$(if $(ONLY), -only $(ONLY))

.PHONY: test-page
test-page: ## look at the monitor's page with a browser, at calm, failure and recovery, 6 and 1,000 nodes (Debian's chromium; PICTURES= folder)
	@.ci/apt chromium chromium || { echo "test-page: SKIPPED: as said above"; exit 0; }; \
	cd tests && go test ./page -count=1 -timeout 20m -v -chromium "$$(command -v chromium)" $(if $(PICTURES),-pictures "$(abspath $(PICTURES))")

.PHONY: test-observation
test-observation: ## ask a real Prometheus each query of the dashboard and of the alerts (Debian's prometheus)
	@.ci/apt prometheus prometheus || { echo "test-observation: SKIPPED: as said above"; exit 0; }; \
	cd tests && go test ./observation -count=1 -timeout 10m -v -run 'Query|Paged' -prometheus "$$(command -v prometheus)"

# What npm installs lies outside the tree, and is installed once.
AJV ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/reknit/ajv-8.20.0

.PHONY: test-contract-ajv
test-contract-ajv: ## hold drawn events against the schemas with ajv in its strict mode, and against the services (Node and npm; DRAWS= of each kind)
	@for tool in node npm; do command -v $$tool >/dev/null || { echo "test-contract-ajv is SKIPPED: there is no $$tool"; exit 0; }; done; \
	[[ -d "$(AJV)/node_modules/ajv" ]] || npm install --prefix "$(AJV)" --no-audit --no-fund --ignore-scripts ajv@8.20.0 || { \
		echo "test-contract-ajv is SKIPPED: ajv cannot be had (no npm registry?)"; exit 0; }; \
	cd tests && go test ./contract -count=1 -v -run AnotherLanguage -ajv "$(AJV)" -draws $(or $(DRAWS),200)

.PHONY: release-checks
release-checks: ## all that a release must pass and that takes too long for .ci/run, some hours (ONLY= names of sections; tests/README.md has them)
	.ci/release $(ONLY)

.PHONY: generate
generate: ## write schemas, AsyncAPI and the tables of events/README.md and deploy/settings.md anew
	cd tests && go test ./contract -run UpToDate -count=1 -update

.PHONY: lint
lint: ## run the linters of .golangci.yml
	$(GOLANGCI) run --allow-serial-runners $(addprefix ./,$(addsuffix /...,$(MODULES)))

# CI asks first whether the linter can be had at all.
.PHONY: lint-tool
lint-tool:
	$(GOLANGCI) version

.PHONY: vulnerabilities
vulnerabilities: ## look for code with a known vulnerability that some program calls (govulncheck; its data are at vuln.go.dev)
	$(GOVULNCHECK) work

# The checks of a release ask first whether its data can be had: only then it tells of when they are.
.PHONY: vulnerability-data
vulnerability-data:
	$(GOVULNCHECK) -version | grep 'DB updated'

.PHONY: tidy
tidy: ## bring every go.mod and go.sum up to date
	go work sync
	@for module in $(MODULES); do echo "go mod tidy in $$module"; (cd $$module && go mod tidy) || exit 1; done

.PHONY: verify
verify: generate ## check that each module builds alone, is tidy, and that generate changes nothing
	@for module in $(MODULES); do echo "verify $$module"; \
		(cd $$module && export GOWORK=off && go build -o /dev/null ./... && go mod tidy -diff) || exit 1; done
	git diff --exit-code -- events deploy/settings.md

# Hoplog. `make help` lists the targets.
#
# Needed beforehand: Go, Node.js with npm, make. For the suites on a real Kafka also a JDK 17 and Maven.
# Everything that is fetched goes to .tools/, everything that is built to bin/; git ignores both.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# One setting for the binary, its tests and the linter: what is tested is what runs, and nothing compiles twice.
export CGO_ENABLED := 0

TOOLS   := .tools/bin
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X github.com/hoplog/hoplog/gateway/app.version=$(VERSION)

## dev: install what is missing, build, and run everything on this machine (ARGS="--data DIR ...")
.PHONY: dev
dev: build
	@exec bin/hoplog dev $(ARGS)

## build: bin/hoplog and the ClickHouse engine beside it
.PHONY: build
build: engine
	@echo "building bin/hoplog $(VERSION)"
	@[ -e bin/hoplog ] || echo "the first time it compiles all dependencies: a few minutes"
	@go build -trimpath -ldflags '$(LDFLAGS)' -o bin/hoplog .

# ---- the embedded ClickHouse engine ------------------------------------------------------------

ENGINE_VERSION := 26.5.3
ENGINE_OS      := $(shell uname -s | tr A-Z a-z)
ENGINE_ARCH    := $(patsubst aarch64,arm64,$(patsubst x86_64,x64,$(shell uname -m)))
ENGINE_PACKAGE := @chdb/lib-$(ENGINE_OS)-$(ENGINE_ARCH)$(if $(filter linux,$(ENGINE_OS)),-gnu)
ENGINE_DIR     := .tools/npm/node_modules/$(ENGINE_PACKAGE)
ENGINE_STAMP   := $(ENGINE_DIR)/.installed-$(ENGINE_VERSION)

## engine: the ClickHouse engine as a library (npm), bin/libchdb.so
.PHONY: engine
engine: $(ENGINE_STAMP)
	@mkdir -p bin
	@[ bin/libchdb.so -ef $(ENGINE_DIR)/libchdb.so ] || ln -f $(ENGINE_DIR)/libchdb.so bin/libchdb.so 2>/dev/null || cp -f $(ENGINE_DIR)/libchdb.so bin/libchdb.so

$(ENGINE_STAMP):
	@command -v npm >/dev/null || { echo "npm is missing: install Node.js with npm"; exit 1; }
	@echo "fetching the ClickHouse engine $(ENGINE_PACKAGE)@$(ENGINE_VERSION) with npm (about 160 MB, 560 MB unpacked)"
	@mkdir -p .tools/npm
	@npm install --prefix .tools/npm --no-save --no-audit --no-fund --ignore-scripts --loglevel=error '$(ENGINE_PACKAGE)@$(ENGINE_VERSION)'
	@touch $@

# ---- what the tests need -----------------------------------------------------------------------

KAFKA_POM   := events/eventlog/realkafka/files/pom.xml
KAFKA_LIBS  := .tools/kafka/libs
KAFKA_STAMP := .tools/kafka/pom.sum

## kafka: the jars of a real Apache Kafka for the tests (Maven), .tools/kafka/libs
.PHONY: kafka
kafka:
	@command -v mvn >/dev/null && command -v java >/dev/null || { echo "mvn or java is missing: install a JDK 17 and Maven"; exit 1; }
	@cksum $(KAFKA_POM) | cmp -s - $(KAFKA_STAMP) || { \
		echo "fetching Apache Kafka with Maven (about 45 jars, 43 MB)"; \
		rm -rf .tools/kafka; mkdir -p $(KAFKA_LIBS); \
		mvn -q -B -Dstyle.color=never -f $(KAFKA_POM) dependency:copy-dependencies -DoutputDirectory='$(CURDIR)/$(KAFKA_LIBS)'; \
		cksum $(KAFKA_POM) > $(KAFKA_STAMP); }

# A prefix of its own: npm takes away from a prefix what it was not asked for this time.
AXE_VERSION := 4.14.1
AXE_STAMP   := .tools/axe/.installed-$(AXE_VERSION)

## axe: the accessibility rules that the pages for visitors are held against (npm), .tools/axe
.PHONY: axe
axe: $(AXE_STAMP)

$(AXE_STAMP):
	@command -v npm >/dev/null || { echo "npm is missing: install Node.js with npm"; exit 1; }
	@echo "fetching axe-core@$(AXE_VERSION) with npm (about 3 MB)"
	@mkdir -p .tools/axe
	@npm install --prefix .tools/axe --no-save --no-audit --no-fund --ignore-scripts --loglevel=error 'axe-core@$(AXE_VERSION)'
	@touch $@

REDIS_DIR      := .tools/redis
# The server and the libraries that a bare Debian lacks.
REDIS_PACKAGES := redis-server redis-tools libjemalloc2 liblzf1
HAVE_REDIS      = { command -v redis-server && command -v redis-cli || [ -x $(REDIS_DIR)/usr/bin/redis-server ]; } >/dev/null

## redis: a real redis-server for the tests (Debian packages), .tools/redis; nothing is installed or started
.PHONY: redis
redis:
	@$(HAVE_REDIS) || { \
		command -v apt-get >/dev/null && command -v dpkg >/dev/null || { echo "apt-get or dpkg is missing: install redis-server by hand"; exit 1; }; \
		echo "fetching redis-server with apt-get (about 2 MB)"; \
		rm -rf $(REDIS_DIR) $(REDIS_DIR).new; mkdir -p $(REDIS_DIR).new; cd $(REDIS_DIR).new; \
		apt-get -o APT::Sandbox::User=root download -qq $(REDIS_PACKAGES) 2>/dev/null || { [ "$$(id -u)" != 0 ] || apt-get update -qq; apt-get -o APT::Sandbox::User=root download -qq $(REDIS_PACKAGES); }; \
		for package in *.deb; do dpkg -x "$$package" .; done; rm -f *.deb; cd ../..; mv $(REDIS_DIR).new $(REDIS_DIR); }

# What `make test` may do without is noted in .tools/not-run, in plain words, and repeated at its end.
.PHONY: test-needs
test-needs: build
	@: > .tools/not-run
	@if command -v mvn >/dev/null && command -v java >/dev/null; then $(MAKE) --no-print-directory kafka; \
	else echo "the suites on a real Kafka: they need a JDK 17 and Maven" >> .tools/not-run; fi
	@$(MAKE) --no-print-directory redis >.tools/redis.log 2>&1 || { tail -3 .tools/redis.log; echo "the tests of the shared tier: redis-server could not be fetched" >> .tools/not-run; }
	@command -v chromium chromium-browser google-chrome >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "installing chromium with apt-get, for the tests of the pages (about 100 MB)"; \
			{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } >.tools/apt.log 2>&1 \
			|| { tail -5 .tools/apt.log; echo "the tests of the pages: chromium could not be installed" >> .tools/not-run; }; \
		else echo "the tests of the pages: they need chromium, and only root can install that" >> .tools/not-run; fi; }
	@$(MAKE) --no-print-directory axe || echo "the accessibility rules on the pages: axe-core could not be fetched" >> .tools/not-run
	@sed 's/^/will not run: /' .tools/not-run

# ---- tools pinned by go.mod --------------------------------------------------------------------

BUF          := $(TOOLS)/buf
GOLANGCI     := $(TOOLS)/golangci-lint
GOTESTSUM    := $(TOOLS)/gotestsum
OAPI_CODEGEN := $(TOOLS)/oapi-codegen
GENERATORS   := $(BUF) $(TOOLS)/protoc-gen-go $(TOOLS)/protoc-gen-go-vtproto $(OAPI_CODEGEN)

$(TOOLS)/%: go.mod
	@echo "building $* as pinned in go.mod"
	@mkdir -p $(TOOLS)
	@go build -ldflags '-s -w' -o $@ "$$(go list -f '{{.ImportPath}}' tool | grep '/$*$$')"
	@touch $@

# ---- generated code ----------------------------------------------------------------------------

GENERATED := .tools/generated

# Into a scratch tree first: `generate` copies it, `generated-current` compares it.
.PHONY: generated-scratch
generated-scratch: $(GENERATORS)
	@rm -rf $(GENERATED); mkdir -p $(GENERATED)/gateway/client
	@PATH="$(CURDIR)/$(TOOLS):$$PATH" $(BUF) generate schemas --template schemas/buf.gen.yaml -o $(GENERATED)/schemas
	@$(OAPI_CODEGEN) -config schemas/oapi-server.yaml -o $(GENERATED)/gateway/api.gen.go schemas/openapi.yaml
	@$(OAPI_CODEGEN) -config schemas/oapi-client.yaml -o $(GENERATED)/gateway/client/api.gen.go schemas/openapi.yaml

## generate: Go code from schemas/ (protobuf, OpenAPI)
.PHONY: generate
generate: generated-scratch
	@echo "generating schemas/pb, gateway/api.gen.go, gateway/client/api.gen.go"
	@for f in schemas/pb/*.pb.go; do [ ! -e "$$f" ] || [ -e "$(GENERATED)/$$f" ] || rm "$$f"; done
	@cd $(GENERATED) && find . -name '*.go' | while read -r f; do \
		mkdir -p "$(CURDIR)/$${f%/*}"; cmp -s "$$f" "$(CURDIR)/$$f" || cp "$$f" "$(CURDIR)/$$f"; done

.PHONY: generated-current
generated-current: generated-scratch
	@echo "comparing generated code with schemas/"
	@stale=0; \
	for f in $$(cd $(GENERATED) && find . -name '*.go' | sed 's|^\./||') $$(ls schemas/pb/*.pb.go); do \
		cmp -s "$(GENERATED)/$$f" "$$f" || { echo "stale: $$f (run make generate)"; stale=1; }; done; exit $$stale

# ---- checks and tests --------------------------------------------------------------------------

SYSTEMTEST  := ./gateway/systemtest/...
UNIT         = $$(go list ./... | grep -v '/gateway/systemtest')
COUNTS      := .tools/test-counts
# Appends "passed failed skipped" of one run of tests; the summary adds them up.
COUNT       := --post-run-command "bash -c 'echo \$$((TESTS_TOTAL-TESTS_FAILED-TESTS_SKIPPED)) \$$TESTS_FAILED \$$TESTS_SKIPPED >> $(COUNTS)'"
GO_TEST      = $(GOTESTSUM) --format standard-quiet $(COUNT) --

.PHONY: vet
vet:
	@echo "go vet"
	@go vet -tags synctests ./...

## lint: golangci-lint as pinned in go.mod
.PHONY: lint
lint: $(GOLANGCI)
	@echo "golangci-lint"
	@$(GOLANGCI) run --build-tags synctests ./...

## check: the fast inner loop: generated code is current, vet, lint, unit tests
.PHONY: check
check: generated-current vet lint $(GOTESTSUM)
	@$(GO_TEST) -short -p 2 -timeout 5m $(UNIT)

## test: install what the tests need, run all of them
.PHONY: test
test: test-needs generated-current vet lint $(GOTESTSUM)
	@: > $(COUNTS)
	@echo "unit tests"
	@$(GO_TEST) -p 2 -timeout 20m $(UNIT)
	@echo "simulation in virtual time"
	@$(GO_TEST) -count=1 -timeout 15m -tags synctests ./gateway/simulation
	@echo "system tests on bin/hoplog"
	@$(GO_TEST) -count=1 -p 1 -timeout 45m $(SYSTEMTEST)
	@sed 's/^/did not run: /' .tools/not-run
	@awk '{p+=$$1; f+=$$2; s+=$$3} END {printf "%d passed, %d failed, %d skipped\n", p, f, s}' $(COUNTS)

## model: the model of the chain rule in its large form
.PHONY: model
model:
	@HOPLOG_MODEL=large go test -count=1 -timeout 60m -v -run '^TestModel' ./commands/handler

## conformance: Watermill's own suite on our publisher and subscriber, in its long form, on the embedded broker and a real Kafka
.PHONY: conformance
conformance: kafka
	@HOPLOG_PUBSUB=long go test -count=1 -timeout 30m -v -run '^TestConformance$$' ./events/eventlog/pubsub | grep -E '^ *--- |^ok|^FAIL|Error'

SEEDS ?= 1000
SEED  ?= 1
TRIES ?= 1

## simulate: SEEDS schedules of faults in virtual time, from SEED on, each TRIES times (SEEDS=1000 SEED=1 TRIES=1)
.PHONY: simulate
simulate:
	@mkdir -p .tools
	@go test -c -tags synctests -o .tools/simulation.test ./gateway/simulation
	@cd gateway/simulation && ../../.tools/simulation.test -test.run '^TestSimulation$$' -test.timeout 0 -seed=$(SEED) -seeds=$(SEEDS) -tries=$(TRIES)

FUZZTIME ?= 10s

## fuzz: search with every fuzz target for FUZZTIME (10s); what was found before is in the unit tests
.PHONY: fuzz
fuzz:
	@dirs=$$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n1 dirname | sort -u); [ -n "$$dirs" ] || exit 0; \
	go test -list '^Fuzz' $$dirs | awk '/^Fuzz/ {n[++c]=$$1} /^ok/ {for (i=1;i<=c;i++) print $$2, n[i]; c=0}' > .tools/fuzz-targets
	@while read -r package target; do \
		echo "fuzzing $$target for $(FUZZTIME)"; \
		go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$package" </dev/null | grep -v '^fuzz: elapsed'; \
	done < .tools/fuzz-targets

ROUNDS       ?= 300
KAFKA_ROUNDS ?= 100
SEED         ?= 0

## chaos: kill and freeze processes and brokers under load, half an hour (ROUNDS=300 KAFKA_ROUNDS=100 SEED=N)
.PHONY: chaos
chaos: build
	@[ "$(KAFKA_ROUNDS)" = 0 ] || $(MAKE) --no-print-directory kafka
	@echo "$(ROUNDS) rounds on hoplog dev, $(KAFKA_ROUNDS) on three Kafka brokers"
	@HOPLOG_CHAOS_ROUNDS=$(ROUNDS) HOPLOG_CHAOS_KAFKA_ROUNDS=$(KAFKA_ROUNDS) HOPLOG_CHAOS_SEED=$(SEED) \
		go test -count=1 -v -timeout 3h -run '^TestChaos' ./gateway/systemtest | grep -v '^=== '

DRILL_SECONDS ?= 20

## drills: each thing behind the redirects fails for a while, under load (DRILL_SECONDS=20)
.PHONY: drills
drills: build kafka
	@HOPLOG_DRILL_SECONDS=$(DRILL_SECONDS) go test -count=1 -v -timeout 1h -run '^TestDrills' ./gateway/systemtest | grep -v '^=== '

CLICKS ?= 10000000

## clicks: count clicks under kill -9 of node, sink and broker, one by one (CLICKS=10000000 SEED=N)
.PHONY: clicks
clicks: build kafka
	@HOPLOG_CLICKS=$(CLICKS) HOPLOG_CLICKS_SEED=$(SEED) go test -count=1 -v -timeout 12h -run '^TestClicksUnderKill' ./gateway/systemtest | grep -v '^=== '

BENCHES ?= create redirect replay

## bench: the load scenarios whose figures the README shows (BENCHES="create redirect replay")
.PHONY: bench
bench: build
	@for name in $(BENCHES); do bin/hoplog bench "$$name"; done

## bench-kafka: creating links on one and on three real Kafka brokers
.PHONY: bench-kafka
bench-kafka: build kafka
	@go test -run '^$$' -bench 'CreateOnKafka' -benchtime 1x -timeout 20m ./gateway/systemtest/

## clean: remove what was built and fetched
.PHONY: clean
clean:
	@rm -rf bin .tools

## help: this list
.PHONY: help
help:
	@sed -n 's/^## /  /p' $(MAKEFILE_LIST)

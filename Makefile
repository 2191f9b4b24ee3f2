# Packhorse: build, test and check. A bare `make` lists the targets.

GO       ?= go
FUZZTIME ?= 2s
BENCH    ?= .
JOBS     ?= .
DATA     ?= .data

# Nothing may change go.mod on the way, and a checkout that git finds dubious still builds: the version comes from below.
export GOFLAGS := -mod=readonly -buildvcs=false
export CGO_ENABLED ?= 0
# Every run judges the same random cases; 0 is a new seed each time.
export RAPID_SEED ?= 1

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
TAGS    := -tags invariants
LINT    := $(firstword $(wildcard .cache/bin/golangci-lint) $(shell command -v golangci-lint 2>/dev/null))

.DEFAULT_GOAL := help
.PHONY: help run build test race test-git test-shared test-shared-short test-dist test-clients fuzz bench bench-smoke bench-peers bench-distributed dist fmt fmt-check lint tidy ci

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## build, start `packhorse dev` and print lines to paste (DATA=.data LISTEN=127.0.0.1:8080)
	@echo 'building: seconds, or the first time about two minutes on two cores'
	@$(MAKE) --no-print-directory build
	@exec bin/packhorse dev --data $(DATA) $(if $(LISTEN),--listen $(LISTEN))

# A fifth less time: the compiler seldom collects garbage (0.9 GB of memory for the largest package), and leaves out what -s
# and -w strip from the binary.
build: ## build bin/packhorse
	GOGC=1000 $(GO) build -gcflags all=-dwarf=false -ldflags '$(LDFLAGS)' -o bin/packhorse ./cmd/packhorse

test: ## every test that needs only Go and git, without a network
	@echo 'every test: about 6 minutes on two cores, 8 with an empty build cache'
	$(GO) test $(TAGS) -timeout 10m ./...

# What the race detector would only repeat at a tenth of the speed: damage, models, counts and sizes, which one goroutine makes.
RACE_SKIP := Flips|FlippedBits|Story|ForkReadsWhat|ForkPrune|GoneLayers|SegmentOfGitPack|LongChain|Policies|Damage|Fsck|Missing|Leftovers|Model$$|Trips|Size$$|Cost$$|FewLayers|TestBackup|Disguises|Git$$|GitTakes|LargeBatches|Golden

race: ## the same tests, the short ones, under the race detector (needs a C compiler); not cmd and bench, which run processes
	@# The detector forgets what it knew of a new buffer by mapping memory anew from 64 KiB on: the page faults cost as much as the tests.
	@if CGO_ENABLED=1 $(GO) env CC | xargs which >/dev/null 2>&1; then \
		GORACE=clear_shadow_mmap_threshold=16777216 CGO_ENABLED=1 $(GO) test -race -short -timeout 15m -skip '$(RACE_SKIP)' \
			$$($(GO) list ./... | grep -vE '^packhorse/(cmd|bench)(/|$$)'); \
	else echo "race: skipped, no C compiler"; fi

# packages-with PATTERN lists the packages whose tests match it.
packages-with = $$(grep -rl --include='*_test.go' $(1) . | xargs -r -n1 dirname | sort -u)

test-git: ## only the packages whose tests ask the installed git, nothing from the cache
	$(GO) test $(TAGS) -count=1 -timeout 10m $(call packages-with,'packhorse/fuzz/oracle')

# What tests over shared stores need: PostgreSQL and versitygw, or the names of servers that run.
HAS_SHARED = { { [ -n "$$PACKHORSE_TEST_KEYS" ] || ls /usr/lib/postgresql/*/bin/initdb || command -v initdb; } >/dev/null 2>&1 && \
	{ [ -n "$$PACKHORSE_TEST_FILES" ] || [ -x .cache/bin/versitygw ] || command -v versitygw; } >/dev/null 2>&1; }

test-shared: ## refs, engine, api and real clients over PostgreSQL and a bucket: several minutes
	@if $(HAS_SHARED); then PACKHORSE_TEST_STORES=shared $(GO) test -tags clients,invariants -p 1 -timeout 20m ./refs ./engine/... ./api/...; \
	else echo "test-shared: skipped, PostgreSQL or versitygw is missing"; fi

# The rows that servers change under preconditions, and whole servers beside each other.
test-shared-short:
	@if ! $(HAS_SHARED); then echo "test-shared: skipped, PostgreSQL or versitygw is missing"; exit 0; fi; \
	export PACKHORSE_TEST_STORES=shared; \
	$(GO) test $(TAGS) -p 1 -short -timeout 10m -skip 'SnapshotStaysPut|LostTail|Max$$' \
		./refs ./engine/catalog ./engine/removal ./engine/outbox ./engine/webhook ./engine/upstream && \
	$(GO) test $(TAGS) -short -timeout 10m -run 'Linearizable|Storm|SharedDuties|Trips|DeleteManyRefs|CareStoreAway' ./engine

test-dist: ## a release made twice, its package installed, the image built and run (root and buildah, else skipped): minutes
	PACKHORSE_DIST=1 $(GO) test $(TAGS) -v -count=1 -timeout 20m -run 'TestDist$$|TestDebianInstall|TestImage' ./cmd/dist
	PACKHORSE_DIST=1 $(GO) test $(TAGS) -v -count=1 -timeout 20m -run 'TestDockerfileBuilds|TestFirstMinutes' ./cmd/packhorse

test-clients: ## real clients against the binary: npm, go-git, dulwich, isomorphic-git, curl, nginx, Chromium
	$(GO) test -tags clients,invariants -v -count=1 -timeout 15m ./api/clienttest

fuzz: ## every fuzz target for FUZZTIME each (2s), one on each processor; stops at the first failure
	@# One binary a package: go test would link it for each target. A worker that is busy when the time is over makes it fail
	@# with a deadline: that says nothing about the target.
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT; number=0; \
	for pkg in $(call packages-with,'^func Fuzz'); do \
		number=$$((number + 1)); \
		$(GO) test $(TAGS) -fuzz . -c -o "$$folder/$$number" $$pkg || exit 1; \
		targets=$$(cd $$pkg && "$$folder/$$number" -test.list '^Fuzz') || exit 1; \
		for target in $$targets; do echo "$$folder/$$number $$pkg $$target"; done >>"$$folder/targets" || exit 1; \
	done; \
	xargs -P "$$(getconf _NPROCESSORS_ONLN)" -L 1 sh -c 'echo "fuzz $$2 $$3 $(FUZZTIME)"; \
		said=$$(cd "$$2" && "$$1" -test.run "^$$" -test.fuzz "^$$3\$$" -test.fuzztime $(FUZZTIME) -test.parallel 1 \
			-test.fuzzminimizetime 20x -test.fuzzcachedir "$$($(GO) env GOCACHE)/fuzz/packhorse/$$2" 2>&1) && exit; \
		case "$$said" in *"Failing input"*) ;; *"context deadline exceeded"*) exit 0;; esac; \
		printf "%s\n" "$$said"; exit 255' fuzz <"$$folder/targets"

bench: ## benchmarks as text for benchstat (BENCH=regexp)
	@$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count 6 -timeout 60m ./...

bench-smoke: ## every benchmark once, to see that it runs; with the tag, to share what the tests have compiled
	$(GO) test $(TAGS) -run '^$$' -bench . -benchtime 1x -short -timeout 10m ./...

bench-peers: build ## packhorse beside git http-backend, same jobs in one run; see bench/README.md
	$(GO) run ./bench/peers -packhorse bin/packhorse $(ARGS)

bench-distributed: build ## servers over a database and a bucket, with latency, beside one with a data folder (JOBS=regexp); see bench/README.md
	@if $(HAS_SHARED); then $(GO) test -run '^$$' -bench 'Jobs/$(JOBS)' -benchtime 1x -timeout 60m ./bench/distributed -args -packhorse $(CURDIR)/bin/packhorse; \
	else echo "bench-distributed: skipped, PostgreSQL or versitygw is missing"; fi

dist: ## what a release consists of, in dist: tarballs, packages, bills of materials, checksums (PLATFORMS=linux/amd64); the same bytes each time
	$(GO) run ./cmd/dist $(if $(PLATFORMS),-platforms $(PLATFORMS)) -version $(VERSION) -time $${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} -out dist

fmt: ## format the code; by gofmt where golangci-lint is missing
	$(if $(LINT),$(LINT) fmt,gofmt -w .)

fmt-check:
	@if [ -n "$(LINT)" ]; then $(LINT) fmt --diff; else test -z "$$(gofmt -l . | tee /dev/stderr)"; fi

lint: ## static analysis
	@test -n "$(LINT)" || { echo 'lint: golangci-lint is missing; .ci/run installs it into .cache/bin'; exit 1; }
	$(LINT) run ./...

tidy: ## the floors, package comments, names, citations and paths
	$(GO) run ./cmd/tidy

ci: fmt-check tidy lint race fuzz bench-smoke test-shared-short test-clients ## what .ci/run adds to `make test`

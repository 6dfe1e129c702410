# make run      serve the embedded example policies on 127.0.0.1:8080
# make test     the tests, in under four minutes on two cores: without the race detector, npm packages and load
# make check    formatting, vet, staticcheck, unused code, tidiness, then every test; the product runs with the race detector
# make docs     write the generated tables of docs/
# make interop DIR=…   the public AuthZEN interop fixtures in DIR, against the binary
# make differential N=…  N random cases against the official Cedar engine (needs node)
# make prove    index, searches, corpus, planted bugs, limits and tenants, at full length
# make reload   10,000 reloads under load, damaged stores, 200 edits of each kind
# make faults   kills, power failures, I/O faults, tampering and proofs, at full length (needs strace; under an hour on two cores)
# make overload three times the capacity, and a noisy tenant: overload-all, overload-noisy
# make live     20 streams of the log, replays and tries while PEPs ask, and the live page under load for ten minutes
# make slow     thousands of stalled clients
# make pod      attacks on memory and processors of a pod with 512 MiB, during decisions
# make soak DURATION=…  half the capacity, for long
# make soak-union DURATION=…  100 sessions of the MCP gateway over ten servers, with kills
# make room     the example docs/examples/mcpx-room, killed 1,000 times while calls wait
# make week     a log of a million decisions: written, verified, exported, replayed
# make bench    cost of an answer, compared with floors, cedar-go and OPA (needs wrk; 12 minutes): ROUNDS=10 SLICE=3s
# make bench BEFORE=FILE  the same, compared with another build of policy-service: no worse than 2 % (8 minutes)
# make bench-short  one round of make bench without OPA, in a minute
# make bench-go  benchmarks of single packages, and the cost of capabilities: time and allocations
# make crash    kill the program many times, with decisions, approvals and proofs in flight
# make mcp      the MCP gateway with the official MCP programs (needs npm)
# make pages   time of the console's pages with 10,000 waiting requests and a log of a million entries
# make screenshots DIR=…  pictures of the console's pages and states, on phone and desktop, light and dark (needs chromium and npm)
# make size     check that the service has at most 40 MB
# make reproducible  build twice, in two directories, and compare
# make sbom     list the contents of the binary, as CycloneDX
# make fuzz     every fuzz target for FUZZTIME each

VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
FUZZTIME   ?= 10m
N          ?= 100000
DURATION   ?= 30m
ROUNDS     ?= 10
SLICE      ?= 3s
BEFORE     ?=
# What build compiles, test need not compile again.
SHARED      = CGO_ENABLED=0 GOFLAGS='-trimpath -buildvcs=false'
# Programs with the race detector would wait a second at their end.
HURRY       = GORACE=atexit_sleep_ms=0
# Tests that drive the program in another process. It has the race detector, and
# they need none.
DRIVERS     = /conformance(/console)?$$
MOST_BYTES  = 40000000
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
DEADCODE    = golang.org/x/tools/cmd/deadcode@v0.52.0
# Code that no command needs to reach: the library for PEPs, and what tests of
# several packages share.
UNREACHED   = ^(pdp/client/|cmd/mcp-gateway/internal/(wire/wiretest|enforce/enforcetest)/)
OPA         = github.com/open-policy-agent/opa@v1.22.0
OPA_DIR     = bin/$(subst @,-,$(notdir $(OPA)))
CYCLONEDX   = github.com/CycloneDX/cyclonedx-gomod@v1.10.0

.PHONY: build size run test check docs interop differential prove reload faults week overload overload-all overload-noisy live slow pod soak soak-union crash mcp room screenshots pages reproducible sbom fuzz bench bench-short bench-go clean

build:
	$(SHARED) go build -ldflags '-s -w -X main.version=$(VERSION)' -o bin/ ./cmd/...

# Every update pulls the image from a registry.
size: build
	@bytes=$$(wc -c < bin/policy-service) && echo "bin/policy-service has $$bytes bytes, of $(MOST_BYTES)" && test $$bytes -le $(MOST_BYTES)

run: build
	exec bin/policy-service serve

test:
	$(SHARED) go test -short ./...

check:
	@test -z "$$(gofmt -l .)" || { gofmt -d .; exit 1; }
	go vet ./...
	go run $(STATICCHECK) ./...
	@dead=$$(go run $(DEADCODE) ./cmd/...) || exit 1; ! printf '%s\n' "$$dead" | grep -Ev '$(UNREACHED)|^$$'
	go mod tidy -diff
	$(HURRY) go test -race -p 3 -timeout 20m $$(go list ./... | grep -vE '$(DRIVERS)')
	$(HURRY) PROGRAM_RACE=1 go test -timeout 20m $$(go list ./... | grep -E '$(DRIVERS)')

docs:
	go test ./cmd/policy-service ./cmd/mcp-gateway ./conformance ./pdp ./schemas -count=1 -run 'TestReferencePages' -update-docs

interop:
	go test ./conformance -count=1 -v -run 'TestInterop' -interop '$(abspath $(DIR))'

differential:
	go test ./evaluation -count=1 -v -timeout 4h -run 'TestDifferential$$' -differential.n $(N)

prove:
	go test ./evaluation -count=1 -v -timeout 4h -run 'TestCorpus|TestIndex|TestSearchIsExact|TestSearchMutants|TestAtLimits|TestCostly|TestRootForbids|Isolat' -corpus.all -index.n 1000000 -search.n 200000 -mutants -limits -isolation.n 20000

reload:
	go test ./conformance -count=1 -v -timeout 30m -run 'TestReload|TestReloadUnderFaults|TestEdits' -reload.swaps 10000 -reload.mutant -edits 200

faults:
	go test ./evaluation/decisionlog -count=1 -v -parallel 8 -timeout 8h -run 'TestKillAnywhere|TestKillLosesBatchedEntries|TestPowerLoss|TestIOFaults|TestDiskFull|TestMutations|TestProofs' \
		-kills 10000 -images 100000 -faults 200 -mutations 1000 -proofs 10000
	go test ./evaluation/decisionlog -count=1 -v -run TestSlowReader -slow 60s
	go test ./pdp -count=1 -v -timeout 1h -run TestFaultSchedules -schedules 1000

overload: overload-all overload-noisy

overload-all:
	go test ./conformance -count=1 -v -timeout 30m -run 'TestOverload$$' -overload.duration 60s

overload-noisy:
	go test ./conformance -count=1 -v -timeout 30m -run 'TestNoisyTenant$$' -overload.duration 60s

live:
	go test ./conformance/console -count=1 -v -timeout 30m -run 'TestStreamsCostLittle|TestLiveUnderLoad|TestReplaysAndTriesBrakeLittle' -live.rounds 10 -live.duration 10m

slow:
	go test ./conformance -count=1 -v -timeout 30m -run 'TestSlowClients' -slow.duration 30s

pod:
	go test ./conformance -count=1 -v -timeout 30m -run 'TestPod|TestSearchesLeaveRoom' -pod.full

soak:
	go test ./conformance -count=1 -v -timeout 0 -run 'TestSoak' -soak.duration $(DURATION)

soak-union:
	go test ./cmd/mcp-gateway -count=1 -v -timeout 0 -run 'TestUnionSoak' -union.soak $(DURATION)

week:
	go test ./conformance -count=1 -v -timeout 2h -run TestWeek -entries 1000000

crash:
	go test ./conformance -count=1 -v -timeout 2h -run 'Crash' -crash.duration 60s -crash.approvals 50 -crash.capabilities 1000

mcp:
	go test ./cmd/mcp-gateway -count=1 -v -timeout 30m -run 'TestConformance|TestInspector|TestCallWaitsForApproval|TestAddedLatency|TestParsers|TestField' -mcp

pages:
	go test ./pdp -count=1 -v -timeout 30m -run TestPagesAreQuick -pages.waiting 10000 -pages.entries 1000000 -pages.p99 50ms

screenshots:
	@test -n '$(DIR)' || { echo 'DIR=… names the directory of the pictures'; exit 1; }
	SCREENSHOTS='$(abspath $(DIR))' go test ./conformance/console -count=1 -timeout 20m -run 'TestStatesAreAccessible|TestLinkedPagesAreAccessible|TestNarrowScreens|TestKeys|TestAuthorStates|TestFaultIsOnTheOverview'

room:
	go test ./docs/examples/mcpx-room -count=1 -v -timeout 1h -room.kills 1000

# Another directory, with nothing compiled before, makes the same bytes.
reproducible: build
	@elsewhere=$$(mktemp -d) && trap 'rm -rf "$$elsewhere"' EXIT && \
	git ls-files -z | tar -c --null -T - | tar -x -C "$$elsewhere" && \
	GOCACHE="$$elsewhere/.cache" $(MAKE) -C "$$elsewhere" build VERSION='$(VERSION)' && \
	cmp bin/policy-service "$$elsewhere/bin/policy-service" && sha256sum bin/policy-service

# The tool is built by its own go.mod and go.sum.
sbom: build
	@dir=$$(go mod download -json $(CYCLONEDX) | sed -n 's/.*"Dir": "\(.*\)",/\1/p') && \
	go run -C "$$dir" ./cmd/cyclonedx-gomod bin -json -noserial -notimestamp -version '$(VERSION)' \
		-output '$(CURDIR)/bin/policy-service.cdx.json' '$(CURDIR)/bin/policy-service'

# go test fuzzes one target at a time.
fuzz:
	@go test -list 'Fuzz.*' ./... | awk '/^Fuzz/ {n[++i]=$$1} /^ok/ {for (j=1; j<=i; j++) print $$2, n[j]; i=0}' | \
	while read -r package target; do \
		echo "== $$package $$target"; \
		go test "$$package" -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) || exit 1; \
	done

# OPA is measured and no dependency: go.mod does not name it.
$(OPA_DIR)/opa:
	CGO_ENABLED=0 GOBIN='$(CURDIR)/$(OPA_DIR)' go install $(OPA)

bench: build $(if $(BEFORE),,$(OPA_DIR)/opa)
	go run ./conformance/benchmark -rounds $(ROUNDS) -slice $(SLICE) -json bin/benchmark.json $(if $(BEFORE),-before '$(BEFORE)',-opa $(OPA_DIR)/opa)

bench-short: build
	go run ./conformance/benchmark -rounds 1 -slice 2s

bench-go:
	go test ./pdp ./evaluation ./evaluation/decisionlog ./schemas/authzen -run '^$$' -bench 'Handler|Decide|Append|Unmarshal' -benchmem
	go test ./conformance -count=1 -v -run TestCapabilityCost -capability.calls 4000

clean:
	rm -rf bin policy-service-state

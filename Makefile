# The tools are pinned here and are no dependency of the program.
lint := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
dead := go run golang.org/x/tools/cmd/deadcode@v0.52.0

version := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
ldflags := -s -w -X github.com/farol-preservation/farol/internal/process/build.version=$(version)

# All that is compiled is compiled once for all targets, and wherever the tree lies. Only
# the race detector needs cgo, and so a C compiler.
export GOFLAGS := $(GOFLAGS) -trimpath
export CGO_ENABLED := 0

.PHONY: demo build release compiled test race test-deps soak check lint bench bench-all bench-queue bench-scale bench-lists chaos stores mutants schema notices deps
.DEFAULT_GOAL := build

demo: deps build                ## bags from upload to preservation, on this machine
	bin/farol demo $(ARGS)

build:                          ## bin/farol, and bin/farol-dev with the one-machine stack
	go build -ldflags '$(ldflags)' -o bin/ ./cmd/farol
	cd dev && go build -ldflags '$(ldflags)' -o ../bin/ ./farol-dev

release:                        ## programs, packages, image and checksums in dist/; make release VERSION=v1.2.3 KEY=~/.ssh/release
	cd release && go run . -version '$(VERSION)' -key '$(KEY)' -out ../dist $(ARGS)

compiled:                       ## what the checks and the tests both need, once, before they run side by side
	go build ./...
	cd dev && go build ./...

test: test-deps                 ## all tests, against real servers that they start; soak tests at a twentieth
	.ci/test

race: test-deps                 ## the same, with the race detector in every package
	.ci/test race

test-deps: deps
	.ci/deps cc
	.ci/deps pooler
	.ci/deps scanner
	.ci/deps browser
	.ci/deps clients
	.ci/deps packages

soak: deps                      ## soak tests whole, and a table of what they did; make soak ARGS='-run Model'
	.ci/deps cc
	go run ./internal/rigs/soak $(ARGS)

check: lint                     ## what must hold before a commit, besides the tests; the linter vets too
	for module in dev bench platform release; do (cd $$module && $(lint) run) || exit; done
	cd chaos && go vet ./...
	for module in . dev bench chaos platform release; do (cd $$module && go mod tidy -diff) || exit; done
	.ci/unreached $(dead)

lint:                           ## formatting (gofumpt, gci) included; make lint ARGS=--fix fixes some
	test -z "$$(gofmt -l . | tee /dev/stderr)"
	$(lint) run $(ARGS)

bench: deps                     ## whole ingests next to the limits of the machine; make bench ARGS='-only W1,S -against HEAD~1'
	cd bench && go run . table $(ARGS)

bench-all: deps                 ## all other benchmarks: restorations, fixity, digests, pulls, the packages
	cd bench && go test -run '^$$' -bench . -benchtime 1x -timeout 60m .
	go test -run '^$$' -bench . ./...

bench-queue: deps               ## the queue compared with public ones, and with itself; make bench-queue ARGS='-only farol,river'
	.ci/deps peers
	cd bench && go run . queue $(ARGS)

bench-scale: deps               ## many workers on one database; make bench-scale ARGS='-workers 16 -bags mixed'
	cd bench && go run . scale $(ARGS)

bench-lists: deps               ## the lists of the REST API on a large archive; make bench-lists ARGS='-scale 0.01 -dur 30s'
	cd bench && go run . lists $(ARGS)

chaos: deps                     ## real servers fail while bags are ingested; make chaos ARGS=--all for all
	case '$(ARGS)' in *--all*|*pg-ten-switches*) .ci/deps patroni ;; esac
	cd chaos && go run . $(ARGS)

stores: deps                    ## Farol's whole life on the S3 stores that archives own; make stores ARGS='-only minio,ceph'
	cd chaos && go run . stores $(ARGS)

schema: deps                    ## write docs/schema.md from the catalog of a migrated database
	go test ./migrations -run TestSchemaPageIsFresh -update

mutants: deps                  ## break the queue on purpose, and see which test notices
	go run ./internal/rigs/mutants $(ARGS)

notices:                        ## THIRD_PARTY_NOTICES, after go.mod has changed
	go run ./internal/rigs/notices > THIRD_PARTY_NOTICES.new
	mv THIRD_PARTY_NOTICES.new THIRD_PARTY_NOTICES

deps:                           ## PostgreSQL and Redis, where they are missing
	.ci/deps servers

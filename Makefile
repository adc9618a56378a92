# Handler. Two commands do all set-up on a fresh Debian or Ubuntu:
#
#   make demo   the main job, no account: the demo agent in a real sandbox opens a page in a real browser
#   make test   everything: unit, conformance on real podman, end to end with real agents and a real browser
#
# make check is what every commit passes; make build puts the programs in bin/; make install puts them under PREFIX.

SHELL := /bin/bash
PREFIX ?= $(HOME)/.local
VERSION ?= $(shell git describe --always --dirty --tags 2>/dev/null || cat VERSION 2>/dev/null || echo devel)

# The date in the man pages is the sources', so that two builds of them are the same.
EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || stat -c %Y VERSION 2>/dev/null || echo 0)

# What podman's bindings need to be built without C libraries.
TAGS := remote,containers_image_openpgp,exclude_graphdriver_btrfs,exclude_graphdriver_devicemapper
GOBUILD := CGO_ENABLED=0 go build -trimpath -tags $(TAGS) -ldflags "-s -w -X main.version=$(VERSION)"
PROGRAMS := handler handlerd handler-guest handler-demo-agent

# The page's built form is committed, so that building Handler needs no Node; this makes it anew (Node 20 or later, npm).
page:
	cd handlerd/web/page && npm ci --no-audit --no-fund && npm run build

.PHONY: page build install check vet lint test demo bench soak fuzz clean _demo _test _bench _soak

build:
	@[ -x bin/handlerd ] || echo "compiling Handler; the first time takes a few minutes" >&2
	@mkdir -p bin
	@for p in $(PROGRAMS); do $(GOBUILD) -o bin/$$p ./cmd/$$p || exit 1; done

# Whoever has the programs built already, such as in the copy that a root's make demo leaves, needs no Go to install them.
bin/handlerd:
	@echo "Go is not on PATH, and nothing is built yet: put Go 1.26 or later on PATH, or first: make demo" >&2; exit 1

install: $(if $(shell command -v go),build,bin/handlerd)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/systemd/user $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
	  $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	install -m 0755 $(addprefix bin/,$(PROGRAMS)) $(DESTDIR)$(PREFIX)/bin
	install -m 0644 packaging/systemd/handlerd.socket $(DESTDIR)$(PREFIX)/share/systemd/user/
	sed 's|@PREFIX@|$(PREFIX)|g' packaging/systemd/handlerd.service > $(DESTDIR)$(PREFIX)/share/systemd/user/handlerd.service
	SOURCE_DATE_EPOCH=$(EPOCH) bin/handler man $(DESTDIR)$(PREFIX)/share/man/man1
	bin/handler completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/handler
	bin/handler completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_handler
	bin/handler completion fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/handler.fish
	@echo "installed to $(DESTDIR)$(PREFIX)/bin; next: handler doctor"
	@case ":$$PATH:" in *":$(PREFIX)/bin:"*) ;; *) echo "that folder is not on your PATH yet: export PATH=$(PREFIX)/bin:\$$PATH";; esac

check: lint
	go test -race -short -tags $(TAGS) ./...

lint:
	@bad=$$(gofmt -l $$(git ls-files '*.go' 2>/dev/null || find . -name '*.go')); \
	  if [ -n "$$bad" ]; then echo "not formatted (run gofmt -w):"; echo "$$bad"; exit 1; fi
	go vet -tags $(TAGS) ./...
	go tool staticcheck -tags $(TAGS) ./...

demo:
	@hack/run demo

test:
	@hack/run test

bench:
	@hack/run bench

_demo: build
	@hack/demo

_test: build
	@hack/test

_bench: build
	@hack/bench

# Forty runs at once, thousands of turns, random kills; at the end nothing may be left (docs/handlers/performance.md).
SOAKTIME ?= 10m
soak:
	@SOAKTIME=$(SOAKTIME) hack/run soak

_soak: build
	@hack/soak --time $(SOAKTIME)

# Every fuzz target for FUZZTIME each; their seeds run in make test.
FUZZTIME ?= 60s
fuzz:
	@hack/fuzz $(FUZZTIME) $(TAGS)

clean:
	rm -rf bin

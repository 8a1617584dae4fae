# Everything is built in build/. `make test`, `make check` and `make demo` first install
# the packages that they need (scripts/setup.sh) if root runs them; otherwise they print
# what to install.

GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
FUZZTIME ?= 30s
CC ?= cc
CFLAGS ?= -O2
IMAGE ?= splitnic:$(VERSION)
LDFLAGS ?=
ARCH ?=
PREFIX ?= /usr/local
DESTDIR ?=

binary := build/splitnic
plugin := build/splitnic-cni
# The program that writes manual pages and completions. When cross-compiling, it is one
# for this machine.
generator = $(binary)
manpages := build/man
yardstick := build/yardstick
wireguard := v0.0.0-20260522210424-ecfc5a8d5446
adapter := build/adapter.so
export GO FUZZTIME ROUNDS BENCH_ONLY

# For scripts/soak, which has the defaults.
export CYCLES FRAMES DIRECT_CYCLES RDMA_CYCLES RDMA_FRAMES SEED FIRST

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: $(binary) $(plugin) ## build build/splitnic, and build/splitnic-cni

.PHONY: $(binary)
$(binary):
	$(GO) build -trimpath -buildmode=pie -ldflags '-bindnow -X main.version=$(VERSION) $(LDFLAGS)' -o $(binary) ./cmd/splitnic

# Runtimes copy it to machines with any C library, so it is static.
.PHONY: $(plugin)
$(plugin):
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-X main.buildVersion=$(VERSION) $(LDFLAGS)' -o $(plugin) ./cmd/splitnic-cni

$(yardstick): $(wildcard scripts/measure/yardstick/*.[ch])
	@mkdir -p build
	$(CC) -std=gnu11 -Wall -Wextra -Wshadow -Werror $(CFLAGS) -o $@ $(filter %.c,$^) -libverbs -lm

$(adapter): $(wildcard ci/softroce/adapter/*.[ch])
	@mkdir -p build
	$(CC) -std=gnu11 -Wall -Wextra -Wshadow -Werror $(CFLAGS) -fPIC -shared -fvisibility=hidden -o $@ $(filter %.c,$^) -lpthread

.PHONY: demo
demo: ## show it at work: DHCP, ping, HTTP, TCP both ways beside ib_write_bw
	scripts/demo

.PHONY: test
test: ## run the tests, in about twelve minutes; ends with "N passed, N failed, N skipped"
	@scripts/test

.PHONY: test-all
test-all: ## run all tests, also those that take long, of all layers; in about 50 minutes
	@scripts/test -all unit netns softroce machines faults vm pods packages

.PHONY: test-unit
test-unit: ## run the tests that need no privileges
	@scripts/test unit

.PHONY: test-netns
test-netns: ## run the tests in network namespaces (as root, or by sudo)
	@scripts/test netns

.PHONY: test-softroce
test-softroce: ## run the tests on RDMA devices, in a guest if need be
	@scripts/test softroce

.PHONY: test-kernels
test-kernels: ## run the tests on RDMA devices in a guest of each kernel (KERNELS="6.1 6.12")
	@scripts/setup.sh build test
	@scripts/test-kernels $(KERNELS)

.PHONY: test-faults
test-faults: ## run all tests with two machines: faults of cable, machine, process, disk, clock
	@scripts/test -all machines faults

.PHONY: test-vm
test-vm: ## run the tests with virtual machines, by QEMU and libvirt (as root, or by sudo)
	@scripts/test vm

.PHONY: test-pods
test-pods: ## run the tests with container runtimes, Podman and containerd (as root, or by sudo)
	@scripts/test pods

.PHONY: test-packages
test-packages: ## run the tests that install the packages in a clean root of Debian (as root)
	@scripts/test packages

.PHONY: check
check: ## check format, vet, lint, shell scripts, module files
	@scripts/setup.sh build test
	@scripts/check

.PHONY: build/measure
build/measure:
	$(GO) build -ldflags '-X github.com/splitnic/splitnic/scripts/measure/results.version=$(VERSION)' -o $@ ./scripts/measure

.PHONY: bench
bench: ## measure layer and card beside the device and other networks (ROUNDS=5, BENCH_ONLY)
	@scripts/bench bench

.PHONY: bench-native
bench-native: ## measure the software path beside a bare relay and other networks, at full speed (ROUNDS, BENCH_ONLY)
	@scripts/setup.sh build test bench
	@$(MAKE) --no-print-directory build/measure
	-@$(MAKE) --no-print-directory build/tools/wireguard-go
	PATH="$(CURDIR)/build/tools:$$PATH" build/measure bench-native $(BENCH_FLAGS)

# WireGuard in user space, with the offloads that the packages of older systems lack.
.PHONY: build/tools/wireguard-go
build/tools/wireguard-go:
	@mkdir -p $(@D)
	@made=$$(bash -c '. scripts/lib.sh; tool wireguard $(wireguard) golang.zx2c4.com/wireguard') && ln -sfT "$$made" $@

.PHONY: bench-attacks
bench-attacks: ## measure an honest host while another one attacks its I/O unit (ROUNDS=5, ATTACKS, PINGS=1 for round trips only)
	@scripts/setup.sh build bench
	@$(MAKE) --no-print-directory build/measure
	build/measure bench-attacks $(BENCH_FLAGS) $(if $(PINGS),-pings) $(ATTACKS)

.PHONY: bench-hosts
bench-hosts: ## have many hosts connect to one I/O unit at once (HOSTS=400, PORTS=macvtap or none, BUSY=0 processes beside, FLOOD=0s of frames once they are in, ROUNDS=3)
	@$(MAKE) --no-print-directory build/measure
	build/measure bench-hosts -hosts $(or $(HOSTS),400) -ports $(or $(PORTS),macvtap) -busy $(or $(BUSY),0) -flood $(or $(FLOOD),0s) $(BENCH_FLAGS)

.PHONY: bench-failover
bench-failover: ## measure fail-overs after kill -9 of the I/O unit, on Soft-RoCE (ROUNDS=50)
	@scripts/bench bench-failover

.PHONY: bench-compare
bench-compare: ## compare the Go benchmarks with those of another revision (REF=, BENCH=regexp)
	scripts/benchcompare "$(REF)" "$(or $(BENCH),.)"

.PHONY: bench-restart
bench-restart: ## restart both endpoints 100 times under a connection: gaps, and what broke (RESTARTS=25 each)
	@ROUNDS=$(or $(RESTARTS),$(ROUNDS)) scripts/bench bench-restart

.PHONY: fuzz
fuzz: ## fuzz every target for FUZZTIME (30s), or as many as fit into FUZZTOTAL seconds
	@scripts/fuzz

.PHONY: soak
soak: ## connect, transfer and disconnect for hours (CYCLES, FRAMES, DIRECT_CYCLES, RDMA_CYCLES, RDMA_FRAMES, SEED, FIRST)
	@scripts/setup.sh build test
	@scripts/soak

.PHONY: sanitize
sanitize: ## run verbs and sessions over it with -race, -asan and cgocheck2 on RDMA devices
	@scripts/setup.sh build test
	@scripts/sanitize

.PHONY: man
man: build ## write the manual pages, into build/man
	rm -rf $(manpages)
	mkdir -p $(manpages)
	GOARCH= CC= $(GO) build -trimpath -buildmode=pie -o $(manpages)/ github.com/cpuguy83/go-md2man/v2
	$(generator) man $(manpages) docs/cni.md docs/policy.md docs/trust.md
	for page in $(manpages)/*.md; do \
		$(manpages)/go-md2man -in "$$page" -out "$${page%.md}" && rm "$$page" || exit 1; \
	done
	rm $(manpages)/go-md2man

# They build nothing, so that root needs neither Go nor write access to the checkout's caches.
installed_bash := share/bash-completion/completions/splitnic
installed_zsh := share/zsh/site-functions/_splitnic
installed_fish := share/fish/vendor_completions.d/splitnic.fish
units := splitnic-host@.service splitnic-agent.service splitnic-iounit.service

.PHONY: install
install: ## install below PREFIX what `make build man` has made: programs, units for systemd, man pages, completions, examples
	@for made in $(binary) $(plugin) $(manpages)/splitnic.8; do \
		[ -e "$$made" ] || { echo "install: there is no $$made: type: make build man" >&2; exit 1; }; \
	done
	install -D -m 0755 $(binary) $(DESTDIR)$(PREFIX)/bin/splitnic
	install -D -m 0755 $(plugin) $(DESTDIR)$(PREFIX)/lib/cni/splitnic-cni
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	for unit in $(units); do \
		sed 's|@BINDIR@|$(PREFIX)/bin|' deploy/systemd/$$unit >$(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit && \
		chmod 0644 $(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit || exit 1; \
	done
	install -D -m 0644 deploy/prometheus/alerts.yaml $(DESTDIR)$(PREFIX)/share/splitnic/prometheus/alerts.yaml
	install -D -m 0644 deploy/grafana/splitnic.json $(DESTDIR)$(PREFIX)/share/splitnic/grafana/splitnic.json
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/doc/splitnic/examples examples/config/*
	for section in 5 8; do \
		install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/man/man$$section $(manpages)/*.$$section || exit 1; \
	done
	install -d $(dir $(addprefix $(DESTDIR)$(PREFIX)/,$(installed_bash) $(installed_zsh) $(installed_fish)))
	$(generator) completion bash >$(DESTDIR)$(PREFIX)/$(installed_bash)
	$(generator) completion zsh >$(DESTDIR)$(PREFIX)/$(installed_zsh)
	$(generator) completion fish >$(DESTDIR)$(PREFIX)/$(installed_fish)

.PHONY: uninstall
uninstall: ## remove what install has installed; keys and configuration in /etc/splitnic stay
	cd $(DESTDIR)$(PREFIX) && rm -f bin/splitnic lib/cni/splitnic-cni $(addprefix lib/systemd/system/,$(units)) \
		share/man/man8/splitnic.8 share/man/man[58]/splitnic-*.[58] $(installed_bash) $(installed_zsh) $(installed_fish)
	rm -rf $(DESTDIR)$(PREFIX)/share/splitnic $(DESTDIR)$(PREFIX)/share/doc/splitnic

.PHONY: packages
packages: ## build .deb and .rpm with checksums and bills of materials (ARCH=arm64, VERSION)
	@scripts/setup.sh build $(if $(ARCH),packages)
	@scripts/packages '$(VERSION)' $(ARCH)

.PHONY: image
image: ## build a container image, by docker, podman or buildah (IMAGE=name:tag, IMAGE_FLAGS)
	@scripts/image '$(IMAGE)' '$(VERSION)' $(IMAGE_FLAGS)

.PHONY: clean
clean: ## remove build/
	rm -rf build

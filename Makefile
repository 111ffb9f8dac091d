# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# VERSION and TAG are names of tags, in which make and a shell would find commands: their form is checked before anything expands them.
FORM_OF_VERSION = ^[0-9A-Za-z][0-9A-Za-z.+_-]*$$
FORM_OF_TAG     = ^[a-z0-9][a-z0-9-]*/[0-9][0-9A-Za-z.+_-]*$$
foreign = $(findstring $$,$(value $1))$(findstring ',$(value $1))
$(foreach name,VERSION TAG,$(if $(value $(name)),$(if $(or $(call foreign,$(name)),$(shell [[ '$(value $(name))' =~ $(FORM_OF_$(name)) ]] || \
  echo foreign)),$(error $(name) does not have the form of a tag of this repository: write v1.2.3 for VERSION, and tuning/1.2.3 for TAG))))

VERSION ?= $(shell git describe --tags --match 'v[0-9]*' --always --dirty 2>/dev/null | tr -cd '0-9A-Za-z.+_-' | grep . || echo dev)
CACHE   := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)
# Tools are built once and kept outside the tree, keyed by their pinned versions.
TOOLS   := $(CACHE)/skyhook-tools/$(shell sha256sum go.tools.mod go.tools.sum | sha256sum | cut -c1-12)
SITE_TOOLS := $(CACHE)/skyhook-tools/site-$(shell sha256sum go.site.mod go.site.sum | sha256sum | cut -c1-12)
# All Go modules but test/cluster/hyperkube: a main of ninety lines over the whole of Kubernetes, built with other
# flags than a linter needs, and tested by every test that needs an API server.
MODULES := . $(filter-out %/hyperkube,$(patsubst %/go.mod,%,$(shell git ls-files --cached --others --exclude-standard '*/go.mod')))
# The scaffold's scripts are templates; what they become is checked by the tests of internal/packagecli.
SCRIPTS := $(filter-out internal/packagecli/scaffold/%,$(shell git ls-files --cached --others --exclude-standard '*.sh' '.ci/run'))

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/\1|\2/' | column -t -s '|'

.PHONY: build
build: ## build the programs into bin/
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/ ./cmd/operator ./cmd/skyhook-agent ./cmd/kubectl-skyhook

.PHONY: test
test: ## run every test that needs no root (the first run builds an API server); of the chart's, make chart runs more
	@go run -C test/cluster . assets >/dev/null # now, while no test waits for it
	@$(MAKE) --no-print-directory --jobs=2 $(MODULE_TESTS) # test/chart mainly waits for Helm

# What changed since BASE, in packages whose tests need no API server: those take longer, and CI runs them.
BASE    ?= $(or $(shell git merge-base HEAD origin/main 2>/dev/null),HEAD)
CHANGED  = $(filter-out ./internal/cluster ./internal/controller ./internal/cli%,$(addprefix ./,$(sort $(dir \
  $(shell { git diff --name-only $(BASE); git ls-files --others --exclude-standard; } | grep -E '^(cmd|internal|hack|packages)/.*\.go$$' || true)))))

.PHONY: check
check: ## check in two minutes what a change needs before a push: formatting, vet, rules of the tree, the engine, random runs, changed packages
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "run gofmt -w on:"; echo "$$out"; exit 1; }
	go vet ./...
	go test . ./internal/rollout/... ./internal/sim ./hack/mutate
	go test ./test/world -seeds 40
	$(if $(CHANGED),go test -short $(CHANGED))

MODULE_TESTS := $(addprefix test-module/,$(MODULES))
.PHONY: $(MODULE_TESTS)
$(MODULE_TESTS): test-module/%:
	@cd $* && go test -cover -timeout 20m $(if $(filter test/chart,$*),-short) $$(go list ./... | grep -Ev '/cluster/testcluster$$|/test/e2e/[a-z]+$$')

.PHONY: packages
packages: ## install the packages of Debian or Ubuntu that the tests need (needs root if one is missing)
	@hack/packages.sh

.PHONY: test-cluster
test-cluster: ## run the tests of test/cluster, which start and stop whole clusters (needs root)
	cd test/cluster && go test -count=1 -timeout 20m ./testcluster

.PHONY: ci
ci: ## run everything that a change must pass (needs root)
	.ci/run

.PHONY: dco
dco: ## check that the author of each commit since BASE (main) has signed it off
	hack/dco.sh $(or $(BASE),main)

.PHONY: labels
labels: ## create or update the labels of .github/labels.txt on GitHub (needs gh)
	@grep -v '^#' .github/labels.txt | while IFS='|' read -r name color description; do \
	  gh label create "$$name" --color "$$color" --description "$$description" --force; \
	done

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (10s)
	@grep -rl --include='*_test.go' '^func Fuzz' internal | sort | while read -r file; do \
	  sed -n 's/^func \(Fuzz[A-Za-z]*\).*/\1/p' $$file | while read -r name; do \
	    echo "== $$name in $$(dirname $$file)"; \
	    out=$$(go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(or $(FUZZTIME),10s) -fuzzminimizetime 10x ./$$(dirname $$file) </dev/null 2>&1) && { echo "$$out"; continue; }; \
	    case "$$out" in *"Failing input"*) ;; *"context deadline exceeded"*) echo "$$out" | sed -n '/^fuzz:/p'; echo "ok: the time ended during an input"; continue ;; esac; \
	    echo "$$out"; exit 1; \
	  done || exit 1; \
	done

# Packages that start goroutines, or that several goroutines use.
RACY := ./internal/controller ./internal/cluster/... ./internal/cli ./internal/agent/... ./internal/ui

.PHONY: race
race: ## run the tests of packages with goroutines with the race detector (needs a C compiler); PART=3 for one of the five
	CGO_ENABLED=1 go test -race -short -timeout 30m $(or $(if $(PART),$(word $(PART),$(RACY))),$(RACY))

.PHONY: vuln
vuln: ## look for known vulnerabilities in what every module calls
	@hack/vuln.sh $(MODULES) test/cluster/hyperkube

.PHONY: sim
sim: ## play SEEDS (10000) random runs of a whole cluster, from the seed FIRST (1) on
	go test -count=1 -timeout 0 -v -run '^TestWorld$$' ./test/world -seeds $(or $(SEEDS),10000) -first $(or $(FIRST),1)

.PHONY: mutate
mutate: ## plant the faults of hack/mutate one by one and check that tests notice each; PART=3/12 for a part
	go run ./hack/mutate -part $(or $(PART),0/1)

.PHONY: lint
lint: $(TOOLS)/golangci-lint-kube-api-linter chart-lint ## run golangci-lint over every module, with kube-api-linter over api, shellcheck over every script, ct lint over the chart
	$< run --enable-only kubeapilinter ./api/... # alone: over the whole tree it takes as long as all others together
	@for m in $(MODULES); do echo "== $$m"; (cd $$m && $< run --config $(CURDIR)/.golangci.yml ./...); done
	@[ -z "$(SCRIPTS)" ] || shellcheck $(SCRIPTS)

# ct runs helm and yamllint, with its own rules for YAML. What it leaves out: the version, which a release sets; maintainers, which it looks
# up on GitHub; and the schema of Chart.yaml, for which it needs yamale, which Debian does not have. helm checks that file, too.
.PHONY: chart-lint
chart-lint: ## lint the chart by ct, helm and yamllint
	@mkdir -p dist/chart-lint && cd test/chart && go build -o $(CURDIR)/dist/chart-lint/ helm.sh/helm/v4/cmd/helm github.com/helm/chart-testing/v3/ct
	@rules=$$(cd test/chart && go list -m -f '{{.Dir}}' github.com/helm/chart-testing/v3)/etc/lintconf.yaml; \
	  PATH=$(CURDIR)/dist/chart-lint:$$PATH ct lint --charts chart --lint-conf "$$rules" \
	  --check-version-increment=false --validate-maintainers=false --validate-chart-schema=false

.PHONY: try
try: ## show a rollout on fifty simulated nodes in your browser, without root and without a cluster, until you interrupt it
	@go run ./test/scale -try

.PHONY: demo
demo: ## run the quick start in the form DEMO=cluster, kind or nspawn; without it, in the first that is there
	@test/demo/demo.sh up

.PHONY: demo-down
demo-down: ## remove the demo, and nothing else
	@test/demo/demo.sh down

.PHONY: pictures
pictures: pictures-ui ## record the picture of the README on the cluster of `make demo` or of DEMO_KUBECONFIG, and the pages of `kubectl skyhook ui`
	@test/demo/picture.sh

.PHONY: pictures-ui
pictures-ui: ## take the pictures of docs/ui.md, from 1,000 nodes on an API server of this machine, in Chromium; and of every page, for a telephone and a wall, too
	mkdir -p dist/pictures
	cd test/ui && SKYHOOK_UI_PICTURES=$(CURDIR)/docs/images SKYHOOK_SCREENSHOTS=$(CURDIR)/dist/pictures go test -count=1 -v -run '^(TestLive|TestSample|TestAccessibility)$$' .

.PHONY: docs
docs: ## check every example, command and link of the documentation, with an API server
	cd test/docs && go test ./...

.PHONY: site
site: $(SITE_TOOLS)/hugo ## build the documentation of this tree and of each release as a site in dist/site
	go run ./hack/mksite --hugo $< --out dist/site

.PHONY: site-test
site-test: $(SITE_TOOLS)/hugo ## build the site, check every link of it, and open it in Chromium if that is installed
	cd test/site && SKYHOOK_HUGO=$< go test -count=1 ./...

# Kyverno's program is built from its module, with the replacements in its own go.mod. It takes about five minutes, once.
KYVERNO := $(CACHE)/skyhook-tools/kyverno-$(shell sed -n 's|.*"github.com/kyverno/kyverno@\(v[^"]*\)".*|\1|p' test/docs/objects_test.go)/kyverno

.PHONY: kyverno
kyverno: $(KYVERNO) ## have Kyverno's own engine admit and refuse what docs/kyverno says
	cd test/docs && SKYHOOK_KYVERNO=$< SKYHOOK_COSIGN="$(COSIGN)" go test -count=1 -run TestKyverno .

$(CACHE)/skyhook-tools/kyverno-%/kyverno:
	@mkdir -p $(dir $@)
	cd $$(go mod download -json github.com/kyverno/kyverno@$* | sed -n 's/.*"Dir": "\(.*\)",/\1/p') && CGO_ENABLED=0 go build -ldflags "-s -w" -o $@ ./cmd/cli/kubectl-kyverno

.PHONY: chart
chart: ## render the chart with its values, and install, upgrade and uninstall it on an API server
	cd test/chart && go test -timeout 20m ./...

.PHONY: release
release: ## build images, chart, kubectl-skyhook, SBOMs and checksums of VERSION=v1.2.3 into dist/release
	go run ./hack/mkimage --only operator,agent,shell,packages --version '$(VERSION)' --revision $$(git rev-parse HEAD) --out dist/release/images
	hack/release.sh '$(VERSION)' dist/release

# What signs. It is built from its module; COSIGN=cosign takes the one on the PATH.
COSIGN ?= go run github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3
# The names are those of internal/published.
IMAGES ?= $(shell sed -n 's/.*Images = "\(.*\)"/\1/p' internal/published/published.go)
CHARTS ?= $(shell sed -n 's/.*Charts = "\(.*\)"/\1/p' internal/published/published.go)

.PHONY: release-check
release-check: ## compare dist/release with the checksums that another machine got: SUMS=path/to/SHA256SUMS
	@test -n "$(SUMS)" || { echo "set SUMS to the SHA256SUMS of the other machine" >&2; exit 2; }
	diff $(SUMS) dist/release/SHA256SUMS
	cd dist/release && sha256sum --check --strict --quiet SHA256SUMS

.PHONY: release-test
release-test: ## make a release twice, compare both, and check the archives of the plugin and the manifest for krew
	rm -rf dist/release dist/second
	$(MAKE) release VERSION=v7.8.9-rc.1
	mv dist/release dist/second
	$(MAKE) release VERSION=v7.8.9-rc.1
	$(MAKE) release-check SUMS=dist/second/SHA256SUMS
	cd test/chart && SKYHOOK_RELEASE=$(CURDIR)/dist/release go test -count=1 -run '^TestArchives$$' ./render

.PHONY: chart-version
chart-version: ## set the version of the chart to VERSION, and what is generated from it; on main it ends in -dev
	sed -i -E 's/^version: .*/version: $(VERSION:v%=%)/; s/^appVersion: .*/appVersion: $(VERSION)/; s,( image: ghcr.io/skyhook-k8s/skyhook/(operator|agent)):.*,\1:$(VERSION),' chart/Chart.yaml
	$(MAKE) generate

# The next release, and krew, which installs its plugin. The tools are on the stranger's PATH.
REHEARSED = $(patsubst %-dev,%,$(shell sed -n 's/^appVersion: //p' chart/Chart.yaml))
KREW     ?= sigs.k8s.io/krew/cmd/krew@v0.4.4

.PHONY: rehearse
rehearse: ## make the next release, publish it on this machine alone, sign it, and verify and install it from there as a stranger
	rm -rf dist/release && mkdir -p dist/rehearsal
	sed 's/^## Unreleased$$/## $(REHEARSED) (rehearsal)/' CHANGELOG.md >dist/rehearsal/CHANGELOG.md
	CHANGELOG=$(CURDIR)/dist/rehearsal/CHANGELOG.md $(MAKE) release VERSION=$(REHEARSED)
	GOBIN=$(CURDIR)/dist/rehearsal go install $(lastword $(COSIGN))
	GOBIN=$(CURDIR)/dist/rehearsal go install $(KREW)
	cd test/chart && SKYHOOK_REHEARSAL=$(REHEARSED) SKYHOOK_REHEARSAL_TOOLS=$(CURDIR)/dist/rehearsal \
	  go test -count=1 -timeout 20m -v -run '^TestRehearsal$$' ./live

.PHONY: release-allowed
release-allowed: ## check on GitHub that the tag VERSION or TAG is signed, on main, and that CI passed for its commit (needs gh)
	hack/release-allowed.sh '$(or $(TAG),$(VERSION))'

.PHONY: publish
publish: ## push the images of dist/release with their SBOMs and the chart; IMAGES and CHARTS are the repositories, ARGS=--plain-http without TLS
	hack/publish.sh dist/release $(IMAGES) $(CHARTS) $(ARGS)

.PHONY: sign
sign: ## sign what was published, and SHA256SUMS, keyless or with ARGS="--key cosign.key"
	$(COSIGN) sign --yes $(ARGS) $$(cat dist/published.txt)
	$(COSIGN) sign-blob --yes $(ARGS) --bundle dist/SHA256SUMS.sigstore.json dist/release/SHA256SUMS >/dev/null

.PHONY: github-release
github-release: ## make a draft of a release of VERSION on GitHub from dist/release (needs gh)
	gh release create '$(VERSION)' --verify-tag --draft --title '$(VERSION)' $(if $(findstring -,$(VERSION)),--prerelease) --notes-file dist/release/release-notes.md \
	  dist/SHA256SUMS.sigstore.json $$(find dist/release -maxdepth 1 -type f)

.PHONY: krew-manifest
krew-manifest: ## download the manifest for krew of the release VERSION from GitHub (needs gh)
	gh release download '$(VERSION)' --pattern skyhook.yaml --clobber

.PHONY: release-package
release-package: FOLDER = packages/$(patsubst %/,%,$(dir $(TAG)))
release-package: ## build the package of TAG=NAME/VERSION from that tag and push it with its SBOM to PUSH=registry/repository
	@test -n '$(TAG)' -a -n "$(PUSH)" || { echo "set TAG=NAME/VERSION and PUSH=registry/repository" >&2; exit 2; }
	rm -rf dist/package && mkdir -p dist/package && git archive '$(TAG)' '$(FOLDER)' | tar -x -C dist/package
	go run ./hack/mkimage --only shell --version '$(VERSION)' --revision $$(git rev-parse HEAD) --out dist/package/images
	go run ./cmd/kubectl-skyhook package validate --strict --tag '$(notdir $(TAG))' 'dist/package/$(FOLDER)'
	go run ./cmd/kubectl-skyhook package build 'dist/package/$(FOLDER)' --base dist/package/images/shell.tar -t '$(PUSH)/$(subst /,:,$(TAG))' --push $(ARGS)

.PHONY: sign-package
sign-package: ## sign the image of TAG=NAME/VERSION below PUSH=registry/repository, keyless or with ARGS="--key cosign.key"
	@test -n '$(TAG)' -a -n "$(PUSH)" || { echo "set TAG=NAME/VERSION and PUSH=registry/repository" >&2; exit 2; }
	$(COSIGN) sign --yes $(ARGS) '$(PUSH)/$(subst /,:,$(TAG))'

.PHONY: generate
generate: $(SITE_TOOLS)/crd-ref-docs $(SITE_TOOLS)/helm-docs ## generate deep copies, CRDs, roles and docs/api from the Go code, config/ and chart/README.md from the chart, THIRD_PARTY.md
	go generate ./api/... ./internal/controller/...
	cd test/chart && go generate ./...
	go run ./hack/mklicenses
	$(SITE_TOOLS)/crd-ref-docs --log-level ERROR --source-path api --config hack/apidocs/config.yaml --templates-dir hack/apidocs/templates \
	  --renderer markdown --output-mode group --output-path docs/api
	$(SITE_TOOLS)/helm-docs --log-level warning --chart-search-root chart --template-files ../hack/chartdocs/README.md.gotmpl --sort-values-order file

.PHONY: image
image: ## build all images as OCI archives into dist/images (PUSH=repository also pushes them; PLATFORM=linux/amd64 for one platform; ONLY=operator,agent)
	go run ./hack/mkimage $(if $(ONLY),--only $(ONLY)) --version '$(VERSION)' --revision $$(git rev-parse HEAD 2>/dev/null || echo unknown) $(if $(PUSH),--push $(PUSH)) $(if $(PLATFORM),--platform $(PLATFORM))

# The nodes of test/cluster have the architecture of this machine. Those of KUBECONFIG may have another one.
NATIVE = linux/$(shell go env GOARCH)
e2e: PLATFORM ?= $(if $(KUBECONFIG),,$(NATIVE))
chaos disasters: PLATFORM ?= $(NATIVE)

# One cluster serves all packages of the suite: one that is brought up here, the one of test/cluster that SKYHOOK_E2E_CLUSTER names,
# or that of KUBECONFIG (see the package comment of test/e2e/suite).
.PHONY: e2e
e2e: image ## run the end-to-end suite on real systemd nodes (needs root) or the cluster of KUBECONFIG; E2E=./skyhook for a part, SHORT=1 without the longest tests
	@cluster() { go run -C $(CURDIR)/test/cluster . --name e2e "$$@"; }; \
	if [ -z "$${SKYHOOK_E2E_CLUSTER:-}$${KUBECONFIG:-}" ]; then \
	  export SKYHOOK_E2E_CLUSTER=e2e; \
	  cluster down; trap 'cluster down' EXIT; \
	  cluster up --nodes n1,n2,n3,n4,n5,n6 --trixie n5,n6 --apiserver-proxy; \
	fi; \
	cd test/e2e; \
	SKYHOOK_E2E_IMAGES=$(CURDIR)/dist/images go test -count=1 -timeout 60m -p 1 -v $(if $(SHORT),-short) \
	  $(or $(E2E),./smoke ./agent ./skyhook ./packages ./nodeop ./install) 2>&1 | tee $(CURDIR)/dist/e2e.log || \
	  { awk -f $(CURDIR)/hack/failed-tests.awk $(CURDIR)/dist/e2e.log; exit 1; }

# The oldest version of Kubernetes that is supported, in a release of which the module proxy has all modules.
OLDEST ?= v1.30.4

.PHONY: oldest-rules
oldest-rules: ## check the API rules on an API server of the oldest supported Kubernetes; the first run builds it
	KUBERNETES=$(OLDEST) go test -count=1 ./api

.PHONY: oldest
oldest: oldest-rules ## check also smoke tests, quick start and interrupts on real nodes of that version (needs root)
	KUBERNETES=$(OLDEST) $(MAKE) e2e E2E="-run '^(TestNodes|TestPod|TestServiceRestart|TestReboot|TestPowerCut|TestQuickStart|TestServiceInterrupt|TestRebootInterrupt)' ./smoke ./skyhook"

# The release before this one: a tag, or the commit of a release that has none.
PREVIOUS ?= 559e5cca51c3ff8f56b140324c73592efd2895db

.PHONY: skew
skew: ## mix operator, agent and plugin of this tree and of the release PREVIOUS, and let each take over from the other, on real nodes (needs root)
	rm -rf dist/previous && mkdir -p dist/previous && git archive $(PREVIOUS) | tar -x -C dist/previous
	cd dist/previous && go build -o bin/kubectl-skyhook ./cmd/kubectl-skyhook && \
	  go run ./hack/mkimage --only operator,agent --platform $(NATIVE) --revision $(PREVIOUS) --out dist/images
	SKYHOOK_E2E_PREVIOUS=$(CURDIR)/dist/previous $(MAKE) e2e E2E="-run TestPreviousRelease ./skyhook"

# The seed decides which faults happen when, and the profile: Recommended if it is even, Compatible if it is odd. A run prints its seed.
# SKYHOOK_E2E_CLUSTER names a cluster with four nodes and a proxy to use.
# UNDISTURBED names a file that keeps how the undisturbed round of each profile ends in this tree, so that the next run need not begin with it.
.PHONY: chaos
chaos: image ## break the operator, the control plane and four real nodes for FOR (30m) while work runs, from a SEED (needs root)
	@cluster() { go run -C $(CURDIR)/test/cluster . --name chaos "$$@"; }; \
	if [ -z "$${SKYHOOK_E2E_CLUSTER:-}" ]; then \
	  export SKYHOOK_E2E_CLUSTER=chaos; \
	  cluster down; trap 'cluster down' EXIT; \
	  cluster up --nodes n1,n2,n3,n4 --apiserver-proxy --small-disk /var/lib/skyhook; \
	fi; \
	cd test/e2e; \
	unset KUBECONFIG; SKYHOOK_E2E_IMAGES=$(CURDIR)/dist/images go test -count=1 -timeout 0 -v ./chaos -seed $(or $(SEED),0) -for $(or $(FOR),30m) \
	  $(if $(UNDISTURBED),-undisturbed $(abspath $(UNDISTURBED)))

# Each disaster has four real nodes and six simulated ones. The operator has a node of its own; with DISASTER_NODES=9 two disasters run side by
# side, and so on.
DISASTER_NODES ?= 5
.PHONY: disasters
disasters: image ## let twelve changes go wrong on real nodes, with both profiles, for at most FOR (5m) each (needs root); WRITE=1 for docs/profiles.md, ONLY=hangs for one
	@cluster() { go run -C $(CURDIR)/test/cluster . --name disasters "$$@"; }; \
	nodes=$$(seq -s, -f n%g $(DISASTER_NODES)); \
	cluster down; trap 'cluster down' EXIT; \
	cluster up --nodes $$nodes --simulated 144 --apiserver-proxy --small-disk /var/lib/skyhook; \
	cd test/e2e; \
	unset KUBECONFIG; SKYHOOK_E2E_CLUSTER=disasters SKYHOOK_E2E_NODES=$$nodes SKYHOOK_E2E_IMAGES=$(CURDIR)/dist/images \
	  go test -count=1 -timeout 0 -v ./disasters -run '/with/$(ONLY)' -for $(or $(FOR),5m) $(if $(WRITE),-write)

.PHONY: scale
scale: ## measure the operator with 1,000 simulated nodes (ARGS="-help" for more)
	go run ./test/scale $(ARGS)

.PHONY: soak
soak: ## roll out over 1,000 simulated nodes every ten minutes for FOR (2h), and check that nothing grows
	go run ./test/scale -soak $(or $(FOR),2h) -budget 100 $(ARGS)

.PHONY: install
install: ## create the CRDs in the cluster of your kubeconfig
	kubectl apply --server-side -f chart/files/crds

.PHONY: uninstall
uninstall: ## delete the CRDs with all their objects from the cluster of your kubeconfig
	kubectl delete --ignore-not-found -f chart/files/crds

.PHONY: deploy
deploy: ## install the chart in the cluster of your kubeconfig (ARGS for helm)
	cd test/chart && go tool helm.sh/helm/v4/cmd/helm upgrade --install skyhook-operator ../../chart --namespace skyhook --create-namespace --wait $(ARGS)

.PHONY: undeploy
undeploy: ## delete every Skyhook and uninstall the chart from the cluster of your kubeconfig; the CRDs stay
	cd test/chart && go tool helm.sh/helm/v4/cmd/helm uninstall skyhook-operator --namespace skyhook --timeout 15m

.PHONY: run
run: ## run the operator on this machine, against the cluster of your kubeconfig
	go run ./cmd/operator

$(TOOLS)/%:
	@mkdir -p $(TOOLS)
	go build -modfile=go.tools.mod -o $@ $$(go list -modfile=go.tools.mod -f '{{.ImportPath}}' tool | grep '/$*$$')

$(SITE_TOOLS)/%:
	@mkdir -p $(SITE_TOOLS)
	CGO_ENABLED=0 go build -modfile=go.site.mod -o $@ $$(go list -modfile=go.site.mod -f '{{.ImportPath}}' tool | grep '/$*$$')

.PHONY: clean
clean: ## remove what was built in the tree (caches outside it stay)
	rm -rf bin dist

#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the quick start: the operator, a Skyhook, and the file it wrote on two nodes. DEMO chooses where: cluster, a cluster of
# yours; kind, containers of Docker; nspawn, two real nodes of this machine. Without it the first that is there is taken.
# `demo.sh up` may be run again at any time and continues from what exists; `demo.sh down` removes everything. DEMO_KUBECONFIG
# names a cluster of yours, DEMO_REGISTRY a registry for its images, and DEMO_PORT the port of the registry that the demo brings.
set -euo pipefail
if [ -n "${DEMO_KUBECONFIG:-}" ]; then DEMO_KUBECONFIG=$(realpath "$DEMO_KUBECONFIG"); fi
cd "$(dirname "$0")/../.."

cluster=skyhook-demo namespace=skyhook deployment=skyhook-operator-controller-manager published=ghcr.io/skyhook-k8s/skyhook
dist=$PWD/dist/demo registry=${DEMO_REGISTRY:-} port=${DEMO_PORT:-5001} version=v0.1.0 examples=examples
given=${DEMO_KUBECONFIG:-${KUBECONFIG:-}} server='' nodes=() edits=() begin=$SECONDS step='' ticker='' builds=''
# All programs are compiled alike, so that Go compiles the packages that they share only once.
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -gcflags=all=-dwarf=false" PATH=$dist/bin:$PATH

print_heading() { printf '\n\033[1m%s\033[0m\n' "$*"; }
die() { printf 'make demo: %s\n' "$*" >&2; exit 1; }

# A step that takes long says so every ten seconds.
start_ticker() {
  ( while sleep 10 >/dev/null 2>&1 3>&-; do printf '   … %s: %s s\n' "$step" "$((SECONDS - stepped))"; done ) &
  ticker=$!
}

stop_ticker() {
  [ -z "$ticker" ] || kill "$ticker" 2>/dev/null || true
  ticker=''
}

stop_background() {
  stop_ticker
  [ -z "$builds" ] || kill "$builds" 2>/dev/null || true
}
trap stop_background EXIT

begin_step() { # NAME [quiet]: ends the previous step; quiet for one that reports its progress itself
  stop_ticker
  [ -z "$step" ] || printf '   %s: %s s\n' "$step" "$((SECONDS - stepped))"
  step=$1 stepped=$SECONDS
  [ -n "$step" ] || return 0
  print_heading "[$((SECONDS - begin)) s] $step"
  [ "${2:-}" = quiet ] || start_ticker
}

exec 3>&1
run_shown() { # COMMAND…: prints and runs a command
  printf '   $ %s\n' "$*" >&3
  "$@"
}

# Processes of a cluster must not keep this terminal or pipe open.
our_cluster() { "$dist/cluster" --name "$cluster" "$@" 3>&-; }
kind() { if type -P kind >/dev/null; then command kind "$@"; else go run sigs.k8s.io/kind@v0.33.0 "$@"; fi; }

# Prints context and server of a kubeconfig, or of a list of them; nothing if kubectl cannot read it.
read_server() {
  KUBECONFIG=$1 kubectl config view --minify -o 'jsonpath=context {.current-context} at {.clusters[0].cluster.server}' 2>/dev/null || true
}

# Asks whether the demo may use the cluster that KUBECONFIG merely names, which may be in production. Otherwise left says why not.
ask_for_cluster() {
  local answer=''
  server=$(read_server "$given")
  if [ -z "$server" ]; then
    left=" KUBECONFIG=$given names no cluster that kubectl can read."
  elif [ ! -t 0 ]; then
    left=" The cluster of KUBECONFIG, $server, is left alone, because nobody is here to say yes; DEMO=cluster uses it."
  else
    read -r -p "KUBECONFIG names $server. Install the operator there, and label two nodes? [y/N] " answer || true
    [[ ! $answer =~ ^[yY](es)?$ ]] || return 0
    left=" The cluster of KUBECONFIG, $server, is left alone."
  fi
  return 1
}

# Chooses the form of the demo, and says so in the first line.
choose_form() { # up|down
  local reason left='' where
  form=${DEMO:-${DEMO_KUBECONFIG:+cluster}}
  case "$form" in
    '' | cluster | kind | nspawn) ;;
    *) die "DEMO=$form is no form of the demo: write DEMO=cluster, DEMO=kind or DEMO=nspawn" ;;
  esac
  if [ -n "$form" ]; then
    reason="${DEMO:+DEMO=}${DEMO:-DEMO_KUBECONFIG} says so"
  elif [ -e "$dist/form" ]; then
    form=$(<"$dist/form") given=$dist/kubeconfig reason="it is there"
  elif [ "$1" = up ] && [ -n "$given" ] && ask_for_cluster; then
    form=cluster reason="you said yes"
  elif docker info >/dev/null 2>&1; then
    form=kind reason="Docker runs here"
  else
    form=nspawn reason="Docker does not run here"
  fi
  case "$form" in
    cluster)
      find_kubectl
      server=$(read_server "$given")
      [ -n "$server" ] || die "no cluster can be read from ${given:-the kubeconfig in your home}: name one with DEMO_KUBECONFIG=FILE"
      where="a cluster of yours, $server" ;;
    kind) where="kind, with two nodes that are containers" ;;
    nspawn) where="two real nodes of this machine, in systemd-nspawn" ;;
  esac
  printf 'The demo uses %s, because %s.%s\n' "$where" "$reason" "$left"
}

# Fails with one sentence for each missing requirement.
check_requirements() {
  command -v go >/dev/null || die "Go is missing: install it from https://go.dev/dl and add it to PATH"
  [ "$form" != kind ] || docker info >/dev/null 2>&1 || die "kind needs Docker, which does not run here"
  [ "$form" = nspawn ] || return 0
  local missing=() program other="start Docker, or name a cluster of yours with DEMO_KUBECONFIG=FILE"
  [ "$(uname -s)" = Linux ] || die "real nodes need Linux: $other"
  [ "$(id -u)" = 0 ] || die "real nodes need root: run it as root, $other"
  for program in mmdebstrap:mmdebstrap systemd-nspawn:systemd-container busybox:busybox-static ip:iproute2 iptables:iptables; do
    command -v "${program%%:*}" >/dev/null || missing+=("${program##*:}")
  done
  compgen -G '/usr/share/keyrings/debian-archive-keyring.*' >/dev/null || missing+=(debian-archive-keyring)
  [ ${#missing[@]} = 0 ] && return
  command -v apt-get >/dev/null || die "these programs are missing: ${missing[*]}. Install them, $other"
  run_shown apt-get update -qq
  DEBIAN_FRONTEND=noninteractive run_shown apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

build_cluster_program() {
  go build -C test/cluster -trimpath -ldflags "-X github.com/skyhook-k8s/skyhook/test/cluster/build.sources=$PWD/test/cluster" -o "$dist/cluster" .
}

# Builds the plugin, and beside it what its commands for authors look for there: the agent, which is for Linux, and the base image.
build_tools() {
  local programs=(./cmd/kubectl-skyhook)
  [ "$(uname -s)" != Linux ] || programs+=(./cmd/skyhook-agent)
  mkdir -p "$dist/bin"
  go build -trimpath -o "$dist/bin/" "${programs[@]}"
  go run -trimpath ./hack/mkimage --only shell --out "$dist/base" >/dev/null
  mv "$dist/base/shell.tar" "$dist/bin/skyhook-shell.tar"
}

build_images() { # [FLAG…]
  run_shown go run -trimpath ./hack/mkimage --only operator,agent,shell,pause,packages/shellscript,packages/tuning --out "$dist/images" "$@"
}

# Downloads what the builds need while the first of them runs. A download that fails is repeated by the build.
start_downloads() {
  ( go list -C test/cluster/hyperkube -deps . >/dev/null 2>&1; go list -deps ./cmd/operator ./cmd/kubectl-skyhook ./hack/mkimage >/dev/null 2>&1 ) &
}

# Builds images and plugin while the cluster starts, which is mostly waiting.
start_builds() {
  ( build_images --platform "linux/$(go env GOARCH)" --version "$version" >/dev/null && build_tools ) >"$dist/build.log" 2>&1 3>&1 &
  builds=$!
}

await_builds() {
  local failed=''
  begin_step "images, built without Docker, and kubectl skyhook"
  wait "$builds" || failed=yes
  builds=''
  cat "$dist/build.log"
  [ -z "$failed" ] || die "the build of the images or of the plugin failed, see above"
}

use_image() { # PROGRAM IMAGE: edits the manifests that people without Helm install
  local pattern="$published/$1:[^ \"]*"
  [ "$1" != shell ] || pattern=busybox:latest # the image of NodeOps that name none
  edits+=(-e "s|$pattern|$2|")
}

remove_cluster() {
  if our_cluster list | grep -qx "$cluster"; then our_cluster down; fi
}

# Labels nodes of ours with what the examples select: two racks, two zones, and a pool that an autoscaler could enlarge.
label_own_nodes() { # NODE NODE
  nodes=("$@")
  kubectl label node "$@" skyhook.nvidia.com/test-node=demo nvidia.com/gpu.present=true --overwrite >/dev/null
  kubectl label node "$1" example.org/rack=a topology.kubernetes.io/zone=zone-a pool=static --overwrite >/dev/null
  kubectl label node "$2" example.org/rack=b topology.kubernetes.io/zone=zone-b pool=autoscaled --overwrite >/dev/null
}

# Starts a cluster here, with a registry that takes the place of all registries.
use_nspawn() {
  begin_step "the program that starts clusters"
  start_downloads
  build_cluster_program
  begin_step "Kubernetes, containerd and a Debian for nodes (the first time they are built; later they are in the cache)" quiet
  our_cluster build
  begin_step "Kubernetes on this machine, with two real nodes"
  start_builds
  if ! our_cluster kubeconfig >/dev/null 2>&1; then
    remove_cluster # leftovers of a restart of this machine, or of an interrupted run
    our_cluster up --nodes node1,node2 --registry-port "$port" || die "see above; DEMO_PORT chooses another port for the registry"
  fi
  cp "$(our_cluster kubeconfig)" "$KUBECONFIG"
  ln -sf "$(our_cluster assets)/kubectl" "$dist/bin/kubectl"
  run_shown kubectl get nodes
  await_builds
  local program digest platform name
  for program in operator agent shell; do
    digest=$(our_cluster image push "$dist/images/$program.tar" "$published/$program:$version")
    use_image "$program" "$published/$program:$version@$digest"
  done
  our_cluster image push "$dist/images/pause.tar" registry.k8s.io/pause:3.10 >/dev/null
  while read -r digest platform name; do # such as ghcr.io/skyhook-k8s/skyhook/packages/tuning:1.2.0
    if [[ $platform != index || $name != */packages/* ]]; then continue; fi
    program=${name##*/}
    our_cluster image push "$dist/images/packages-${program%:*}.tar" "$name" >/dev/null
  done <"$dist/images/digests.txt"
  label_own_nodes node1 node2
}

# Starts a cluster in kind, with a registry for packages of yours. containerd loads our images under the names in their archives.
use_kind() {
  local node archive hosts=/etc/containerd/certs.d/localhost:$port
  begin_step "Kubernetes in kind, with two nodes" quiet
  start_builds
  if kind get clusters | grep -qx "$cluster"; then
    kind export kubeconfig --name "$cluster" --kubeconfig "$KUBECONFIG"
  else
    kind create cluster --name "$cluster" --kubeconfig "$KUBECONFIG" --wait 5m --config - <<CONFIG
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
nodes: [{role: control-plane}, {role: worker}, {role: worker}]
CONFIG
  fi
  find_kubectl
  docker start "$cluster-registry" >/dev/null 2>&1 ||
    docker run --detach --name "$cluster-registry" --network kind --publish "127.0.0.1:$port:5000" registry:3 >/dev/null
  for node in $(kind get nodes --name "$cluster"); do
    docker exec "$node" mkdir -p "$hosts"
    docker exec --interactive "$node" cp /dev/stdin "$hosts/hosts.toml" <<<"[host.\"http://$cluster-registry:5000\"]"
  done
  await_builds
  for archive in "$dist"/images/*.tar; do run_shown kind load image-archive "$archive" --name "$cluster"; done
  for archive in operator agent shell; do use_image "$archive" "$published/$archive:$version"; done
  # The tag of a changed image is the same.
  kubectl -n "$namespace" rollout restart "deployment/$deployment" >/dev/null 2>&1 || true
  label_own_nodes "$cluster-worker" "$cluster-worker2"
}

find_kubectl() { # the kubectl of this machine, or the one that belongs to our clusters
  type -P kubectl >/dev/null && return
  begin_step "kubectl, which this machine does not have (the first time it is built from source)"
  mkdir -p "$dist/bin"
  build_cluster_program
  ln -s "$(our_cluster assets)/kubectl" "$dist/bin/kubectl"
}

# Whether the demo installed the operator of this cluster.
is_ours() {
  [ "$(kubectl get namespace "$namespace" --ignore-not-found -o jsonpath='{.metadata.labels.skyhook\.test/demo}')" = true ]
}

# Takes a cluster that has no Skyhook yet, and keeps its context: what down removes must not change with your kubeconfig.
claim_cluster() {
  local found
  export KUBECONFIG=$given
  kubectl version >/dev/null || die "$server cannot be reached"
  if ! is_ours; then
    found=$(kubectl get "namespace/$namespace" crd/{skyhooks.skyhook.nvidia.com,nodeops.operator.kairos.io} --ignore-not-found -o name)
    [ -z "$found" ] || die "$server has these already, and not from the demo: ${found//$'\n'/, }. Remove what they belong to first"
    kubectl create namespace "$namespace" >/dev/null
    kubectl label namespace "$namespace" skyhook.test/demo=true >/dev/null
  fi
  ( umask 077; kubectl config view --minify --flatten --raw >"$dist/kubeconfig.new" )
  mv "$dist/kubeconfig.new" "$dist/kubeconfig"
}

# Uses the first two ready nodes of an existing cluster. It labels them with what belongs to this project and its examples alone, and
# marks each label that was not there: down removes only these.
use_cluster() {
  local program digest label i racks=(a b)
  if [ -n "$registry" ]; then
    begin_step "images, pushed to $registry"
    build_images --push "$registry" --version demo
    for program in operator agent shell; do
      digest=$(awk -v name="/$program:demo\$" '$2 == "index" && $3 ~ name { print $1 }' "$dist/images/digests.txt")
      use_image "$program" "$registry/$program:demo@$digest"
    done
    examples=$dist/examples
    mkdir -p "$examples"
    for program in examples/*.yaml; do sed "s|$published/|$registry/|" "$program" >"$dist/$program"; done
  fi
  begin_step "two nodes of your cluster get labels that they do not have"
  mapfile -t nodes < <(kubectl get nodes --no-headers | awk '$2 == "Ready" {print $1}' | head -2)
  [ ${#nodes[@]} -gt 0 ] || die "no node of the cluster is ready"
  for i in "${!nodes[@]}"; do
    for label in skyhook.nvidia.com/test-node=demo "example.org/rack=${racks[i]}"; do
      run_shown kubectl label node --field-selector "metadata.name=${nodes[i]}" --selector "!${label%%=*}" "$label" "$(mark "$label")=demo"
    done
  done
  begin_step "kubectl skyhook"
  build_tools
}

mark() { # LABEL: the label that says that the demo set it
  local key=${1%%=*}
  printf 'skyhook.test/%s' "${key#*/}"
}

install_operator() {
  begin_step "the operator, from config/default/install.yaml"
  sed -e '' "${edits[@]}" config/default/install.yaml >"$dist/install.yaml"
  run_shown kubectl apply --server-side --force-conflicts -f "$dist/install.yaml" >/dev/null
  kubectl -n "$namespace" rollout status "deployment/$deployment" --timeout 10m >/dev/null
  run_shown kubectl -n "$namespace" get deployments
}

follow_rollout() {
  begin_step "the quick start: a Skyhook with one package" quiet
  run_shown kubectl apply -f "$examples/simple.yaml"
  printf '   $ kubectl skyhook status demo -w\n'
  timeout 15m kubectl skyhook status demo -w --interval 1s || true
  run_shown kubectl wait --for=condition=Ready skyhook/demo --timeout=1m
  run_shown kubectl get skyhook demo
  begin_step "what is on the hosts now"
  run_shown kubectl skyhook node run "${nodes[@]}" --yes -- cat /host/skyhook-hello-world | sed 's/^/   /'
}

print_next_steps() {
  local target=localhost:$port/motd reboot=''
  case "$form" in
    cluster) target=${registry:-registry.example.com}/motd ;;
    kind) reboot=$'\n   Reboot nothing here: a node of kind does not come back. Leave out the examples that reboot.\n' ;;
    nspawn) reboot=$'\n   kubectl apply -f examples/nodeop-reboot.yaml    a check on each node, then its reboot\n' ;;
  esac
  begin_step ""
  print_heading "Done in $((SECONDS - begin)) seconds. How to go on:"
  cat <<TEXT
   export KUBECONFIG=$KUBECONFIG
   export PATH=$dist/bin:\$PATH

   kubectl describe skyhook demo                  what its conditions say
   kubectl edit skyhook demo                      change config.sh, and watch the config stage run again
   kubectl apply -f $examples/interrupt.yaml       a package that restarts a service, with cordon and drain
   kubectl skyhook --help                         status, plan, pause, forget, packages
   kubectl skyhook ui                             the nodes and the rollout in a browser
   docs/README.md                                 everything else
$reboot
   A package of your own, as docs/tasks/package.md has it, on ${nodes[*]}:
   kubectl skyhook package init motd
   kubectl skyhook package test motd --host-like debian
   kubectl skyhook package build motd -t $target --push

   make demo-down                                 removes all of it
TEXT
}

up() {
  check_requirements
  mkdir -p "$dist/bin"
  [ "$form" != cluster ] || claim_cluster
  printf '%s\n' "$form" >"$dist/form"
  export KUBECONFIG=$dist/kubeconfig
  "use_$form"
  install_operator
  follow_rollout
  print_next_steps
}

# The API server rejects the deletion while objects need the operator, also in the first seconds after the last one has gone.
remove_operator() {
  local tries=0
  until run_shown kubectl delete --ignore-not-found --timeout=10m -f config/default/install.yaml; do
    tries=$((tries + 1))
    [ "$tries" -lt 12 ] || die "the operator cannot be removed: delete what the messages above name, and run make demo-down again"
    sleep 5
  done
}

down() {
  local key
  mkdir -p "$dist"
  case "$form" in
    nspawn)
      [ -x "$dist/cluster" ] || build_cluster_program
      remove_cluster ;;
    kind)
      kind delete cluster --name "$cluster" --kubeconfig "$dist/kubeconfig"
      if docker inspect "$cluster-registry" >/dev/null 2>&1; then docker rm --force --volumes "$cluster-registry" >/dev/null; fi ;;
    cluster)
      export KUBECONFIG=$given
      if is_ours; then
        run_shown kubectl delete skyhook demo --ignore-not-found --timeout=10m
        remove_operator
      fi
      for key in skyhook.nvidia.com/test-node example.org/rack; do
        run_shown kubectl label node --selector "$(mark "$key")=demo" "$key-" "$(mark "$key")-"
      done ;;
  esac
  rm -rf "$dist"
  print_heading "The demo is removed. Build results are kept in the cache of Go and in ${XDG_CACHE_HOME:-$HOME/.cache}/skyhook-test-cluster."
}

case "${1:-}" in
  up | down)
    choose_form "$1"
    "$1" ;;
  *) die "usage: demo.sh up|down" ;;
esac

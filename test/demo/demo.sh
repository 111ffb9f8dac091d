#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the quick start: a Kubernetes with two real nodes on this machine, the operator, a Skyhook, and the file it wrote on a host.
# `demo.sh up` may be run again at any time and continues from what exists; `demo.sh down` removes everything. DEMO_KUBECONFIG
# selects an existing cluster, and DEMO_REGISTRY a registry for its images.
set -euo pipefail
if [ -n "${DEMO_KUBECONFIG:-}" ]; then DEMO_KUBECONFIG=$(realpath "$DEMO_KUBECONFIG"); fi
cd "$(dirname "$0")/../.."

cluster=skyhook-demo namespace=skyhook deployment=skyhook-operator-controller-manager
kubeconfig=${DEMO_KUBECONFIG:-} registry=${DEMO_REGISTRY:-}
dist=$PWD/dist/demo images=() begin=$SECONDS step='' ticker='' builds=''
# All programs are compiled alike, so that Go compiles the packages that they share only once.
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -gcflags=all=-dwarf=false"

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
kubectl() { "$kubectl" --kubeconfig "$kubeconfig" "$@"; }

# Fails with one sentence for each missing requirement.
check_requirements() {
  command -v go >/dev/null || die "Go is missing: install it from https://go.dev/dl and add it to PATH"
  [ -z "$kubeconfig" ] || return 0
  [ "$(uname -s)" = Linux ] || die "real nodes need Linux: name a cluster of yours with DEMO_KUBECONFIG=FILE"
  [ "$(id -u)" = 0 ] || die "real nodes need root: run it as root, or name a cluster of yours with DEMO_KUBECONFIG=FILE"
  local missing=() program
  for program in mmdebstrap:mmdebstrap systemd-nspawn:systemd-container busybox:busybox-static ip:iproute2 iptables:iptables; do
    command -v "${program%%:*}" >/dev/null || missing+=("${program##*:}")
  done
  compgen -G '/usr/share/keyrings/debian-archive-keyring.*' >/dev/null || missing+=(debian-archive-keyring)
  [ ${#missing[@]} = 0 ] && return
  command -v apt-get >/dev/null || die "these programs are missing: ${missing[*]}. Install them, or name a cluster of yours with DEMO_KUBECONFIG=FILE"
  run_shown apt-get update -qq
  DEBIAN_FRONTEND=noninteractive run_shown apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

build_cluster_program() {
  mkdir -p "$dist/bin"
  go build -C test/cluster -trimpath -ldflags "-X github.com/skyhook-k8s/skyhook/test/cluster/build.sources=$PWD/test/cluster" -o "$dist/cluster" .
}

build_plugin() {
  mkdir -p "$dist/bin"
  go build -trimpath -o "$dist/bin/kubectl-skyhook" ./cmd/kubectl-skyhook
}

build_images() { # [FLAG…]
  run_shown go run -trimpath ./hack/mkimage --only operator,agent,pause,packages/shellscript,packages/tuning --out "$dist/images" "$@"
}

# Downloads what the builds need while the first of them runs. A download that fails is repeated by the build.
start_downloads() {
  ( go list -C test/cluster/hyperkube -deps . >/dev/null 2>&1; go list -deps ./cmd/operator ./cmd/kubectl-skyhook ./hack/mkimage >/dev/null 2>&1 ) &
}

# Builds images and plugin while the cluster starts, which is mostly waiting.
start_builds() {
  ( build_images --platform "linux/$(go env GOARCH)" --version v0.1.0 >/dev/null && build_plugin ) >"$dist/build.log" 2>&1 3>&1 &
  builds=$!
}

await_builds() {
  local failed=''
  wait "$builds" || failed=yes
  builds=''
  cat "$dist/build.log"
  [ -z "$failed" ] || die "the build of the images or of the plugin failed, see above"
}

# The manifests that people without Helm install, with the images of this tree where there are some: NAME=IMAGE.
write_manifests() {
  local edits=() image
  for image in "${images[@]}"; do
    edits+=(-e "s|ghcr.io/skyhook-k8s/skyhook/${image%%=*}:[^ \"]*|${image#*=}|")
  done
  mkdir -p "$dist"
  sed -e '' "${edits[@]}" config/default/install.yaml >"$dist/install.yaml"
}

remove_cluster() {
  if our_cluster list | grep -qx "$cluster"; then our_cluster down; fi
}

# Starts a cluster here, with a registry that takes the place of all registries.
use_own_cluster() {
  begin_step "Kubernetes, containerd and a Debian for nodes (the first time they are built; later they are in the cache)" quiet
  our_cluster build
  begin_step "Kubernetes on this machine, with two real nodes"
  start_builds
  if ! our_cluster kubeconfig >/dev/null 2>&1; then
    remove_cluster # leftovers of a restart of this machine, or of an interrupted run
    our_cluster up --nodes node1,node2 --labels skyhook.nvidia.com/test-node=demo
  fi
  kubeconfig=$(our_cluster kubeconfig)
  kubectl=$(our_cluster assets)/kubectl
  run_shown kubectl get nodes
  begin_step "images, built without Docker, and kubectl skyhook"
  await_builds
  local program digest platform name
  for program in operator agent; do
    digest=$(our_cluster image push "$dist/images/$program.tar" "ghcr.io/skyhook-k8s/skyhook/$program:v0.1.0")
    images+=("$program=ghcr.io/skyhook-k8s/skyhook/$program:v0.1.0@$digest")
  done
  our_cluster image push "$dist/images/pause.tar" registry.k8s.io/pause:3.10 >/dev/null
  while read -r digest platform name; do # such as ghcr.io/skyhook-k8s/skyhook/packages/tuning:1.2.0
    if [[ $platform != index || $name != */packages/* ]]; then continue; fi
    program=${name##*/}
    our_cluster image push "$dist/images/packages-${program%:*}.tar" "$name" >/dev/null
  done <"$dist/images/digests.txt"
  # What the examples select: two racks, two zones, and a pool that an autoscaler could enlarge.
  kubectl label node node1 node2 nvidia.com/gpu.present=true --overwrite >/dev/null
  kubectl label node node1 example.org/rack=a topology.kubernetes.io/zone=zone-a pool=static --overwrite >/dev/null
  kubectl label node node2 example.org/rack=b topology.kubernetes.io/zone=zone-b pool=autoscaled --overwrite >/dev/null
}

find_kubectl() { # the kubectl of this machine, or the one that belongs to our clusters
  kubectl=$(type -P kubectl || true)
  if [ -n "$kubectl" ]; then return; fi
  begin_step "kubectl, which this machine does not have (the first time it is built from source)"
  build_cluster_program
  kubectl=$(our_cluster assets)/kubectl
}

# Whether the demo installed the operator of this cluster.
is_ours() {
  [ "$(kubectl get namespace "$namespace" --ignore-not-found -o jsonpath='{.metadata.labels.skyhook\.test/demo}')" = true ]
}

# Uses the first two ready nodes of an existing cluster.
use_existing_cluster() {
  find_kubectl
  kubectl version >/dev/null || die "the cluster of DEMO_KUBECONFIG=$kubeconfig cannot be reached"
  if ! is_ours && [ -n "$(kubectl -n "$namespace" get deployments -l app.kubernetes.io/name=skyhook-operator -o name)" ]; then
    die "Skyhook is installed in the cluster of DEMO_KUBECONFIG=$kubeconfig, and not by the demo: remove it there first"
  fi
  if [ -n "$registry" ]; then
    begin_step "images, pushed to $registry"
    build_images --push "$registry" --version demo
    local program digest
    for program in operator agent; do
      digest=$(awk -v name="/$program:demo\$" '$2 == "index" && $3 ~ name { print $1 }' "$dist/images/digests.txt")
      images+=("$program=$registry/$program:demo@$digest")
    done
  fi
  begin_step "two nodes of your cluster get the label skyhook.nvidia.com/test-node=demo"
  mapfile -t nodes < <(kubectl get nodes --no-headers | awk '$2 == "Ready" {print $1}' | head -2)
  [ ${#nodes[@]} -gt 0 ] || die "no node of the cluster is ready"
  run_shown kubectl label node "${nodes[@]}" skyhook.nvidia.com/test-node=demo --overwrite
}

follow_rollout() {
  printf '   $ kubectl skyhook status demo -w\n'
  timeout 15m "$dist/bin/kubectl-skyhook" --kubeconfig "$kubeconfig" status demo -w --interval 1s || true
  run_shown kubectl wait --for=condition=Ready skyhook/demo --timeout=1m
  run_shown kubectl get skyhook demo
}

# Prints the file that the Skyhook wrote, read on the host, or in a pod on an existing cluster.
print_result() {
  if [ -z "${DEMO_KUBECONFIG:-}" ]; then
    for node in node1 node2; do
      printf '   $ cat /skyhook-hello-world    # on %s\n' "$node"
      our_cluster node exec "$node" cat /skyhook-hello-world | sed 's/^/   /'
    done
    return
  fi
  kubectl -n "$namespace" delete pod skyhook-demo-look --ignore-not-found >/dev/null
  kubectl -n "$namespace" apply -f - >/dev/null <<POD
apiVersion: v1
kind: Pod
metadata: {name: skyhook-demo-look}
spec:
  nodeName: ${nodes[0]}
  restartPolicy: Never
  tolerations: [{operator: Exists}]
  containers:
  - {name: cat, image: "ghcr.io/skyhook-k8s/skyhook/packages/shellscript:1.2.0", command: [cat, /host/skyhook-hello-world], volumeMounts: [{name: host, mountPath: /host, readOnly: true}]}
  volumes: [{name: host, hostPath: {path: /}}]
POD
  kubectl -n "$namespace" wait pod/skyhook-demo-look --for=jsonpath='{.status.phase}'=Succeeded --timeout=5m >/dev/null
  printf '   $ cat /skyhook-hello-world    # on %s\n' "${nodes[0]}"
  kubectl -n "$namespace" logs skyhook-demo-look | sed 's/^/   /'
  kubectl -n "$namespace" delete pod skyhook-demo-look >/dev/null
}

print_next_steps() {
  begin_step ""
  print_heading "Done in $((SECONDS - begin)) seconds. How to go on:"
  cat <<TEXT
   export KUBECONFIG=$kubeconfig
   export PATH=$(dirname "$kubectl"):$dist/bin:\$PATH

   kubectl describe skyhook demo                  what its conditions say
   kubectl edit skyhook demo                      change config.sh, and watch the config stage run again
   kubectl apply -f examples/interrupt.yaml       a package that restarts a service, with cordon and drain
   kubectl skyhook --help                         status, plan, pause, forget, packages
   docs/README.md                                 everything else

   make demo-down                                 removes all of it

   kubectl skyhook ui                             the nodes and the rollout in a browser
TEXT
}

up() {
  check_requirements
  if [ -z "$kubeconfig" ]; then
    begin_step "the program that starts clusters"
    start_downloads
    build_cluster_program
    use_own_cluster
  else
    use_existing_cluster
    begin_step "kubectl skyhook"
    build_plugin
  fi
  begin_step "the operator, from config/default/install.yaml"
  write_manifests
  run_shown kubectl apply --server-side --force-conflicts -f "$dist/install.yaml" >/dev/null
  kubectl label namespace "$namespace" skyhook.test/demo=true --overwrite >/dev/null
  kubectl -n "$namespace" rollout status "deployment/$deployment" --timeout 10m >/dev/null
  run_shown kubectl -n "$namespace" get deployments
  begin_step "the quick start: a Skyhook with one package" quiet
  run_shown kubectl apply -f examples/simple.yaml
  follow_rollout
  begin_step "what is on the hosts now"
  print_result
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
  mkdir -p "$dist"
  if [ -z "$kubeconfig" ]; then
    [ -x "$dist/cluster" ] || build_cluster_program
    remove_cluster
  else
    find_kubectl
    run_shown kubectl delete skyhook demo --ignore-not-found --timeout=10m
    if is_ours; then remove_operator; fi
    run_shown kubectl label node --selector skyhook.nvidia.com/test-node=demo skyhook.nvidia.com/test-node-
  fi
  rm -rf "$dist"
  print_heading "The demo is removed. Build results are kept in the cache of Go and in ${XDG_CACHE_HOME:-$HOME/.cache}/skyhook-test-cluster."
}

case "${1:-}" in
  up | down) "$1" ;;
  *) die "usage: demo.sh up|down" ;;
esac

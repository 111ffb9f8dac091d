#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# The quick start, carried out and shown: a Kubernetes with two real nodes on this machine, the chart, a Skyhook, and the
# file it wrote on a host. `demo.sh up` may be run again at any time and goes on from what is there; `demo.sh down` removes
# everything. With DEMO_KUBECONFIG the cluster of that file is used, with the images of DEMO_REGISTRY if that is set.
set -euo pipefail
if [ -n "${DEMO_KUBECONFIG:-}" ]; then DEMO_KUBECONFIG=$(realpath "$DEMO_KUBECONFIG"); fi
cd "$(dirname "$0")/../.."

cluster=skyhook-demo namespace=skyhook release=skyhook
kubeconfig=${DEMO_KUBECONFIG:-} registry=${DEMO_REGISTRY:-}
dist=dist/demo values=() begin=$SECONDS step=

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
die() { printf 'make demo: %s\n' "$*" >&2; exit 1; }

next() { # NAME: the step before is over
  [ -z "$step" ] || printf '   … %s: %s s\n' "$step" "$((SECONDS - stepped))"
  step=$1 stepped=$SECONDS
  [ -z "$step" ] || say "[$((SECONDS - begin)) s] $step"
}

exec 3>&1
show() { # COMMAND…: what a person would type
  printf '   $ %s\n' "$*" >&3
  "$@"
}

# What a cluster leaves running must not keep this terminal or pipe open.
lab() { "$dist/cluster" --name "$cluster" "$@" 3>&-; }
helm() { "$helm" --kubeconfig "$kubeconfig" "$@"; }
kubectl() { "$kubectl" --kubeconfig "$kubeconfig" "$@"; }

# One sentence for each thing that keeps the demo from running.
require() {
  command -v go >/dev/null || die "Go is not there: install it from https://go.dev/dl and put it into PATH"
  [ -z "$kubeconfig" ] || return 0
  [ "$(uname -s)" = Linux ] || die "real nodes need Linux: name a cluster of yours with DEMO_KUBECONFIG=FILE"
  [ "$(id -u)" = 0 ] || die "real nodes need root: run it as root, or name a cluster of yours with DEMO_KUBECONFIG=FILE"
  local missing=() program
  for program in mmdebstrap:mmdebstrap systemd-nspawn:systemd-container busybox:busybox-static ip:iproute2 iptables:iptables; do
    command -v "${program%%:*}" >/dev/null || missing+=("${program##*:}")
  done
  [ ${#missing[@]} = 0 ] && return
  command -v apt-get >/dev/null || die "these programs are missing: ${missing[*]}. Install them, or name a cluster of yours with DEMO_KUBECONFIG=FILE"
  show apt-get update -qq
  DEBIAN_FRONTEND=noninteractive show apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

programs() {
  mkdir -p "$dist/bin"
  go build -C test/cluster -o "$PWD/$dist/cluster" .
  CGO_ENABLED=0 go build -trimpath -o "$dist/bin/kubectl-skyhook" ./cmd/kubectl-skyhook
  helm=$(go tool -C test/chart -n helm.sh/helm/v4/cmd/helm)
}

images() { # [FLAG…]
  show go run ./hack/mkimage --only operator,agent,pause,packages/shellscript --out "$dist/images" "$@"
}

forget() {
  if "$dist/cluster" list | grep -qx "$cluster"; then lab down; fi
}

# A cluster of our own, with a registry that plays every registry there is.
own() {
  next "Kubernetes on this machine, with two real nodes (the first time it is built from source: up to half an hour)"
  if ! lab kubeconfig >/dev/null 2>&1; then
    forget # one that did not survive a restart of this machine, or that was interrupted
    lab up --nodes node1,node2 --labels skyhook.nvidia.com/test-node=demo
  fi
  kubeconfig=$(lab kubeconfig)
  kubectl=$("$dist/cluster" assets)/kubectl
  show kubectl get nodes
  next "images, built without Docker"
  images --platform "linux/$(go env GOARCH)" --version v0.1.0 >/dev/null
  local program digest
  for program in image:operator agent:agent; do
    digest=$(lab image push "$dist/images/${program#*:}.tar" "ghcr.io/skyhook-k8s/skyhook/${program#*:}:v0.1.0")
    values+=(--set "controllerManager.manager.${program%:*}.digest=$digest")
  done
  lab image push "$dist/images/pause.tar" registry.k8s.io/pause:3.10 >/dev/null
  lab image push "$dist/images/packages-shellscript.tar" ghcr.io/nvidia/skyhook-packages/shellscript:1.1.0 >/dev/null
}

client() { # the kubectl of this machine, or the one that belongs to our clusters
  kubectl=$(type -P kubectl || true)
  [ -n "$kubectl" ] || kubectl=$("$dist/cluster" assets)/kubectl
}

# A cluster of somebody else: its first two nodes that are ready take part.
foreign() {
  client
  kubectl version >/dev/null || die "the cluster of DEMO_KUBECONFIG=$kubeconfig cannot be reached"
  if [ -n "$registry" ]; then
    next "images, pushed to $registry"
    images --push "$registry" --version demo
    values+=(--set "controllerManager.manager.image.repository=$registry/operator,controllerManager.manager.image.tag=demo,controllerManager.manager.image.pullPolicy=Always"
      --set "controllerManager.manager.agent.repository=$registry/agent,controllerManager.manager.agent.tag=demo")
  fi
  next "two nodes of your cluster get the label skyhook.nvidia.com/test-node=demo"
  mapfile -t nodes < <(kubectl get nodes --no-headers | awk '$2 == "Ready" {print $1}' | head -2)
  [ ${#nodes[@]} -gt 0 ] || die "no node of the cluster is ready"
  show kubectl label node "${nodes[@]}" skyhook.nvidia.com/test-node=demo --overwrite
}

follow() { # until it is complete
  printf '   $ kubectl skyhook status demo -w\n'
  timeout 15m "$dist/bin/kubectl-skyhook" --kubeconfig "$kubeconfig" status demo -w --interval 1s || true
  show kubectl wait --for=condition=Ready skyhook/demo --timeout=1m
  show kubectl get skyhook demo
}

# The file that the Skyhook wrote, read on the host, or in a pod that sees the host's root where no host can be entered.
proof() {
  if [ -z "${DEMO_KUBECONFIG:-}" ]; then
    for node in node1 node2; do
      printf '   $ cat /skyhook-hello-world    # on %s\n' "$node"
      lab node exec "$node" cat /skyhook-hello-world | sed 's/^/   /'
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
  - {name: cat, image: "ghcr.io/nvidia/skyhook-packages/shellscript:1.1.0", command: [cat, /host/skyhook-hello-world], volumeMounts: [{name: host, mountPath: /host, readOnly: true}]}
  volumes: [{name: host, hostPath: {path: /}}]
POD
  kubectl -n "$namespace" wait pod/skyhook-demo-look --for=jsonpath='{.status.phase}'=Succeeded --timeout=5m >/dev/null
  printf '   $ cat /skyhook-hello-world    # on %s\n' "${nodes[0]}"
  kubectl -n "$namespace" logs skyhook-demo-look | sed 's/^/   /'
  kubectl -n "$namespace" delete pod skyhook-demo-look >/dev/null
}

farewell() {
  next ""
  say "Done in $((SECONDS - begin)) seconds. How to go on:"
  cat <<TEXT
   export KUBECONFIG=$kubeconfig
   export PATH=$(dirname "$kubectl"):$PWD/$dist/bin:\$PATH

   kubectl describe skyhook demo                  what its conditions say
   kubectl edit skyhook demo                      change config.sh, and watch the config stage run again
   kubectl apply -f examples/interrupt.yaml       a package that restarts a service, with cordon and drain
   kubectl skyhook --help                         pause, resume, reset, rerun, logs, packages
   docs/README.md                                 everything else

   make demo-down                                 removes all of it
TEXT
}

up() {
  require
  next "programs"
  programs
  if [ -z "$kubeconfig" ]; then own; else foreign; fi
  next "the chart"
  show helm upgrade --install "$release" chart --namespace "$namespace" --create-namespace "${values[@]}" --wait --timeout 10m >/dev/null
  show kubectl -n "$namespace" get deployments
  next "the quick start: a Skyhook with one package"
  show kubectl apply -f examples/simple.yaml
  follow
  next "what is on the hosts now"
  proof
  farewell
}

down() {
  mkdir -p "$dist"
  [ -x "$dist/cluster" ] || go build -C test/cluster -o "$PWD/$dist/cluster" .
  if [ -z "$kubeconfig" ]; then
    forget
  else
    programs
    client
    show kubectl delete skyhook demo --ignore-not-found --timeout=10m
    if helm status "$release" --namespace "$namespace" >/dev/null 2>&1; then
      show helm uninstall "$release" --namespace "$namespace" --timeout 10m
    fi
    show kubectl label node --selector skyhook.nvidia.com/test-node=demo skyhook.nvidia.com/test-node-
  fi
  rm -rf "$dist"
  say "The demo is gone. What was built is kept in the cache of Go and in ${XDG_CACHE_HOME:-$HOME/.cache}/skyhook-test-cluster."
}

case "${1:-}" in
  up | down) "$1" ;;
  *) die "say up or down" ;;
esac

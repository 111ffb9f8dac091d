#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# Records the picture of the README from a real run of the quick start: on the cluster of `make demo`, or on the cluster
# of DEMO_KUBECONFIG with Skyhook installed and a node with the label skyhook.nvidia.com/test-node=demo.
set -euo pipefail
if [ -n "${DEMO_KUBECONFIG:-}" ]; then DEMO_KUBECONFIG=$(realpath "$DEMO_KUBECONFIG"); fi
cd "$(dirname "$0")/../.."

dist=dist/demo picture=docs/images/quick-start.svg columns=110
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT

connect() {
  export KUBECONFIG=${DEMO_KUBECONFIG:-$PWD/$dist/kubeconfig}
  CGO_ENABLED=0 go build -trimpath -o "$temporary/bin/kubectl-skyhook" ./cmd/kubectl-skyhook
  export PATH=$temporary/bin:$PWD/$dist/bin:$PATH TERM=xterm-256color
}

show() { # COMMAND…: record the command and its output as on a terminal
  printf '\033[32m$\033[0m \033[1m%s\033[0m\n' "$*"
  script -qefc "stty cols $columns rows 60; $*" /dev/null <&9
  printf '\n'
}

await() { # TEXT COMMAND…: until the output contains the text
  local text=$1 deadline=$((SECONDS + 300))
  shift
  until "$@" 2>/dev/null | grep -q "$text"; do
    [ "$SECONDS" -lt "$deadline" ] || { echo "picture: no $text in the output of: $*" >&2; return 1; }
    sleep 0.2
  done
}

# Nodes keep the record of a deleted Skyhook's packages: it is reset too, so that the recorded run installs them.
reset() {
  kubectl delete --ignore-not-found --timeout=10m -f examples/interrupt-wait-for-pod.yaml >&2
  kubectl delete --ignore-not-found --timeout=10m -f examples/simple.yaml >&2
  for name in demo wait-for-pod; do kubectl skyhook forget "$name" --confirm >&2; done
}

record() {
  show kubectl apply -f examples/simple.yaml
  await in_progress kubectl get skyhook demo -o 'jsonpath={.status.status}'
  await config kubectl skyhook status demo
  show kubectl skyhook status demo
  kubectl wait --for=condition=Ready skyhook/demo --timeout=15m >&2
  show kubectl get skyhooks
  show kubectl apply -f examples/interrupt-wait-for-pod.yaml
  await ProtectedPod kubectl skyhook why wait-for-pod
  show kubectl skyhook why wait-for-pod
}

mkfifo "$temporary/input"
exec 9<>"$temporary/input" # an input that never ends
connect
reset
record >"$temporary/recording"
kubectl delete --timeout=10m -f examples/interrupt-wait-for-pod.yaml >&2
mkdir -p "$(dirname "$picture")"
go run github.com/charmbracelet/freeze@v0.2.2 --window --background "#161b22" --font.family monospace --font.size 13 --output "$picture" <"$temporary/recording"
echo "$picture: $(wc -c <"$picture") bytes"

#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# Stands in for the programs that the demo calls, under their names. It notes calls that change something in $CALLS, and answers from the
# files of $STATE. A kubeconfig is a file with the name of a cluster.
set -euo pipefail

name=${0##*/}
if [[ "$name $*" = "go run sigs.k8s.io/kind@"* ]]; then
  printf 'go run %s\n' "$2" >>"$CALLS"
  name=kind
  shift 2
fi
server=''
[ "$name" != kubectl ] || server=@$(cat "${KUBECONFIG:-/dev/null}" 2>/dev/null || true)

argument_after() { # FLAG ARGUMENT…
  local flag=$1 previous=''
  shift
  for argument in "$@"; do
    [ "$previous" != "$flag" ] || printf '%s' "$argument"
    previous=$argument
  done
}

# Writes what go build and mkimage leave.
build() {
  local out argument
  out=$(argument_after -o "$@")
  case "$out" in
    */) for argument in "$@"; do [[ $argument != ./cmd/* ]] || touch "$out${argument##*/}"; done ;;
    *) cp "$FAKE" "$out" ;;
  esac
}

make_images() {
  local out only image
  out=$(argument_after --out "$@") only=$(argument_after --only "$@")
  mkdir -p "$out"
  : >"$out/digests.txt"
  for image in ${only//,/ }; do
    touch "$out/${image//\//-}.tar"
    printf 'sha256:%s  index  %s:%s\n' "${image##*/}" "${PUSHED:-ghcr.io/skyhook-k8s/skyhook}/$image" "$([[ $image = packages/* ]] && echo 1.2.0 || echo demo)" >>"$out/digests.txt"
  done
}

case "$name $*" in
  "kubectl config view --minify -o "*) [ -z "${server#@}" ] || printf 'context %s at https://%s' "${server#@}" "${server#@}.example.com"; exit ;;
  "kubectl config view --minify --flatten --raw") cat "$KUBECONFIG"; exit ;;
  "docker info") [ -e "$STATE/docker" ]; exit ;;
  "go env GOARCH") echo amd64; exit ;;
  "id -u") echo 0; exit ;;
  "uname -s") echo Linux; exit ;;
  "go list "*) exit ;;
esac
printf '%s%s %s\n' "$name" "$server" "$*" >>"$CALLS"
case "$name $*" in
  "go build "*) build "$@" ;;
  "go run -trimpath ./hack/mkimage "*) make_images "$@" ;;
  "kind create cluster "*) cat >"$STATE/kind"; echo kind >"$(argument_after --kubeconfig "$@")" ;;
  "kind get clusters") [ ! -e "$STATE/kind" ] || echo skyhook-demo; cat "$STATE/other-kind" 2>/dev/null || true ;;
  "kind get nodes "*) printf '%s\n' skyhook-demo-control-plane skyhook-demo-worker skyhook-demo-worker2 ;;
  "kind export kubeconfig "*) echo kind >"$(argument_after --kubeconfig "$@")" ;;
  "kind delete cluster "*) rm -f "$STATE/kind" ;;
  "docker start "* | "docker inspect "*) [ -e "$STATE/registry" ] ;;
  "docker run "*) touch "$STATE/registry" ;;
  "docker rm "*) rm "$STATE/registry" ;;
  "docker exec --interactive "*) printf 'hosts.toml: %s\n' "$(cat)" >>"$CALLS" ;;
  "cluster --name skyhook-demo list") cat "$STATE/nspawn" 2>/dev/null || true ;;
  "cluster --name skyhook-demo up "*) echo skyhook-demo >"$STATE/nspawn" ;;
  "cluster --name skyhook-demo down") rm "$STATE/nspawn" ;;
  "cluster --name skyhook-demo kubeconfig") [ -e "$STATE/nspawn" ]; echo nspawn >"$STATE/kubeconfig"; echo "$STATE/kubeconfig" ;;
  "cluster --name skyhook-demo assets") dirname "$FAKE" ;;
  "cluster --name skyhook-demo image push "*) echo sha256:pushed ;;
  "kubectl get namespace skyhook --ignore-not-found "*) [ ! -e "$STATE/ours" ] || printf true ;;
  "kubectl get namespace/skyhook crd/"*) cat "$STATE/found" 2>/dev/null || true ;;
  "kubectl label namespace skyhook skyhook.test/demo=true") touch "$STATE/ours" ;;
  "kubectl delete --ignore-not-found "*" -f config/default/install.yaml") rm "$STATE/ours" ;;
  "kubectl get nodes --no-headers") printf '%s\n' 'cp NotReady control-plane' 'worker-1 Ready <none>' 'worker-2 Ready <none>' 'worker-3 Ready <none>' ;;
  "kubectl skyhook node run "*) printf '==> node <==\nhello world\na config is run\n' ;;
esac

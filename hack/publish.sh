#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# Pushes a release that make release has built: its images with their SBOMs as OCI referrers by oras, and its chart by helm. It builds
# nothing, so that what is published is what was checked. Beside the folder of the release it writes what was pushed: references by
# digest for make sign, and the same as checksums for who attests them.
#
#   hack/publish.sh dist/release ghcr.io/skyhook-k8s/skyhook ghcr.io/skyhook-k8s/charts [--plain-http]
set -euo pipefail
from=$(realpath "$1") images=${2%/} charts=${3%/} plain=${4:-}
cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
CGO_ENABLED=0 go -C test/chart build -o "$tools/" helm.sh/helm/v4/cmd/helm oras.land/oras/cmd/oras
PATH=$tools:$PATH
list=$(dirname "$from")/published.txt
: >"$list"

while read -r digest platform name; do
  if [ "$platform" != index ]; then continue; fi
  short=${name#ghcr.io/skyhook-k8s/skyhook/} # such as packages/tuning:2.1.0
  file=${short%:*}
  file=$from/images/${file//\//-}
  [ -e "$file.spdx.json" ] || { echo "publish: $file.spdx.json is missing: run make release" >&2; exit 1; }
  oras cp ${plain:+--to-plain-http} --from-oci-layout "$file.tar@$digest" "$images/$short"
  (cd "$from/images" && oras attach ${plain:+"$plain"} --artifact-type application/spdx+json --annotation org.opencontainers.image.created=1970-01-01T00:00:00Z \
    "$images/$short" "$(basename "$file").spdx.json:application/spdx+json")
  echo "$images/${short%:*}@$digest" >>"$list"
done <"$from/images/digests.txt"

digest=$(helm push ${plain:+"$plain"} "$from"/skyhook-operator-*.tgz "oci://$charts" 2>&1 | tee /dev/stderr | sed -n 's/^Digest: //p')
echo "$charts/skyhook-operator@$digest" >>"$list"
# What Artifact Hub shows about the repository. It says nothing about the release, so it is not signed.
oras push ${plain:+"$plain"} "$charts/skyhook-operator:artifacthub.io" --config /dev/null:application/vnd.cncf.artifacthub.config.v1+yaml \
  artifacthub-repo.yml:application/vnd.cncf.artifacthub.repository-metadata.layer.v1.yaml

sed -E 's/(.*)@sha256:(.*)/\2  \1/' "$list" >"${list%.txt}.sha256"

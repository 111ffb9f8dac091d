#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# Pushes a release that make release has built: its images with their SBOMs as OCI referrers by oras, and its chart by helm. It builds
# nothing, so that what is published is what was checked, and it pushes nothing if one tag is published with another content. Beside the folder of the release it writes what was pushed: references by
# digest for make sign, and the same as checksums for who attests them.
#
#   hack/publish.sh dist/release ghcr.io/skyhook-k8s/skyhook ghcr.io/skyhook-k8s/charts [--plain-http]
set -euo pipefail
from=$(realpath "$1") images=${2%/} charts=${3%/} plain=${4:-}
cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
ln -s "$(go -C test/chart tool -n helm.sh/helm/v4/cmd/helm)" "$(go -C test/chart tool -n oras.land/oras/cmd/oras)" "$tools"
PATH=$tools:$PATH
list=$(dirname "$from")/published.txt
fail() {
  echo "publish: $*" >&2
  exit 1
}

# Of each image its digest and its name, such as packages/tuning:2.1.0.
built=$(awk '$2 == "index" { sub("^ghcr.io/skyhook-k8s/skyhook/", "", $3); print $1, $3 }' "$from/digests.txt")
file_of() { # packages/tuning:2.1.0 is in images/packages-tuning.tar
  local short=${1%:*}
  echo "${short//\//-}"
}

# Asks a registry, and fails with what it says, unless it says that this is not published. Registries also answer 403 for what does not exist.
is_published() { # COMMAND…: puts what it prints into answer
  answer=$("$@" 2>"$tools/error") && return
  grep -Eq 'not found|status code 40[34]' "$tools/error" || fail "$(cat "$tools/error")"
  return 1
}

while read -r digest short; do
  file=$(file_of "$short")
  [ -e "$from/$file.spdx.json" ] || fail "$from/$file.spdx.json is missing: run make release"
  if is_published oras resolve ${plain:+"$plain"} "$images/$short" && [ "$answer" != "$digest" ]; then
    how="choose another version"
    [[ $short != packages/* ]] || how="it or the shell below it has changed: raise package_version in ${short%:*}/config.json"
    fail "$images/$short is published as $answer, and this is $digest. Nodes that have it would not notice; nothing was pushed. What to do: $how"
  fi
done <<<"$built"
packed=$(echo "$from"/skyhook-operator-*.tgz)
version=$(basename "$packed" .tgz)
version=${version#skyhook-operator-}
if is_published oras manifest fetch ${plain:+"$plain"} "$charts/skyhook-operator:$version" &&
  [[ $answer != *sha256:$(sha256sum "$packed" | cut -d' ' -f1)* ]]; then
  fail "$charts/skyhook-operator:$version is published with another content; nothing was pushed. What to do: choose another version"
fi

: >"$list"
while read -r digest short; do
  file=$(file_of "$short")
  oras cp ${plain:+--to-plain-http} --from-oci-layout "$from/images/$file.tar@$digest" "$images/$short"
  (cd "$from" && oras attach ${plain:+"$plain"} --artifact-type application/spdx+json --annotation org.opencontainers.image.created=1970-01-01T00:00:00Z \
    "$images/$short" "$file.spdx.json:application/spdx+json")
  echo "$images/${short%:*}@$digest" >>"$list"
done <<<"$built"

touch --date=1980-01-01T00:00:00Z "$packed" # which helm writes beside the chart
digest=$(helm push ${plain:+"$plain"} "$packed" "oci://$charts" 2>&1 | tee /dev/stderr | sed -n 's/^Digest: //p')
echo "$charts/skyhook-operator@$digest" >>"$list"
# What Artifact Hub shows about the repository. It says nothing about the release, so it is not signed.
oras push ${plain:+"$plain"} "$charts/skyhook-operator:artifacthub.io" --config /dev/null:application/vnd.cncf.artifacthub.config.v1+yaml \
  artifacthub-repo.yml:application/vnd.cncf.artifacthub.repository-metadata.layer.v1.yaml

sed -E 's/(.*)@sha256:(.*)/\2  \1/' "$list" >"${list%.txt}.sha256"

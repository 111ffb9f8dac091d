#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# Makes the files of a release of VERSION in a folder, above the images that mkimage built there: archives and the manifest for krew by
# goreleaser, the chart by helm. The same commit, version and Go give the same bytes. The folder is the release page: what is not on the
# page, the archives of images, is below images, and the digests stand for it.
set -euo pipefail
version=$1 out=$(realpath -m "$2")
cd "$(dirname "$0")/.."
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
fail() {
  echo "release: $*" >&2
  exit 1
}
number='(0|[1-9][0-9]*)'
[[ $version =~ ^v$number\.$number\.$number(-[0-9A-Za-z][0-9A-Za-z.-]*)?$ ]] ||
  fail "\"$version\" is no version: write one such as v1.2.3 or v1.2.3-rc.1, with make release VERSION=v1.2.3"

section() { # NAME: the text below its heading in the changelog, "## v1.2.3 (2026-01-31)"
  awk -v name="$1" '/^## / { within = $2 == name; next } within' "${CHANGELOG:-CHANGELOG.md}" | sed '/./,$!d'
}

# A pre-release without a section gets that of its release, or what is not released yet.
changes=$(section "$version")
if [[ $version == *-* ]]; then
  changes=${changes:-$(section "${version%%-*}")}
  changes=${changes:-$(section Unreleased)}
  changes=${changes:-Nothing that users can notice has changed since the version before.}
fi
[ -n "$changes" ] || fail "CHANGELOG.md has no text below a heading \"## $version (DATE)\": move the text of \"## Unreleased\" there"

# Artifact Hub shows the first sentence of each change. Helm keeps Chart.yaml in the cluster with each revision, so there are 20 at most.
list_changes() {
  echo "$changes" | awk '
    /^- / { all[++n] = substr($0, 3); within = 1; next }
    within && sub(/^  +/, " ") { all[n] = all[n] $0; next }
    { within = 0 }
    END {
      if (n) print "  artifacthub.io/changes: |"
      for (i = 1; i <= n && i <= 20; i++) {
        text = all[i]
        gsub(/\]\([^)]*\)/, "", text); gsub(/\[/, "", text); sub(/\. .*/, "", text); sub(/\.$/, "", text); gsub(/["\\]/, "\\\\&", text)
        print "    - \"" text "\""
      }
      if (n > 20) print "    - More changes are in CHANGELOG.md"
    }'
}

# The version is also in labels and in the tags of images.
built=$(sed -n 's/^appVersion: //p' chart/Chart.yaml)
set_version() { sed -E "s#(ghcr\.io/skyhook-k8s/skyhook/[a-z]+:|app\.kubernetes\.io/version: )${built//./\\.}\b#\1$version#"; }

mkdir -p "$out"
[ ! -d "$out/images" ] || find "$out/images" -type f ! -name '*.tar' -exec mv -t "$out" {} +
cp examples/simple.yaml "$out"
set_version <config/default/install.yaml >"$out/install.yaml"

chart=$temporary/skyhook-operator
cp -r chart "$chart"
rm "$chart"/*.go
cp LICENSE NOTICE "$chart"
{ set_version <chart/Chart.yaml && list_changes; } >"$chart/Chart.yaml"
find "$chart" -exec touch --date=1980-01-01T00:00:00Z {} + # helm writes the times of files into the archive
go -C test/chart tool helm.sh/helm/v4/cmd/helm package "$chart" --version "${version#v}" --app-version "$version" --destination "$out" >/dev/null

if [ -z "${WITHOUT_ARCHIVES:-}" ]; then
  mkdir -p dist
  go run ./hack/mklicenses --texts >dist/THIRD_PARTY_LICENSES
  VERSION=$version go run github.com/goreleaser/goreleaser/v2@v2.15.1 release --snapshot --clean --skip=announce,publish
  go run ./hack/mksbom "$version" "$out" dist/goreleaser/*_*/*
  cp dist/goreleaser/*.tar.gz dist/goreleaser/*.zip dist/goreleaser/krew/skyhook.yaml "$out"
fi

{
  printf '%s\n' "$changes"
  if [ -e "$out/digests.txt" ]; then
    printf '\n### Images\n\n'
    awk '$2 == "index" { print "* `" $3 "@" $1 "`" }' "$out/digests.txt"
  fi
  printf '\nHow to verify: [release-process.md](https://github.com/skyhook-k8s/skyhook/blob/%s/docs/release-process.md#verify-a-release)\n' "$version"
} >"$out/release-notes.md"

cd "$out"
find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum >"$temporary/sums"
mv "$temporary/sums" SHA256SUMS

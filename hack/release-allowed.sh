#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# Checks on GitHub that a tag may become a release: it is signed by a key that GitHub knows, its commit is on main and is the one that is
# checked out here, and CI has passed for it.
#
#   hack/release-allowed.sh v1.2.3
set -euo pipefail
tag=$1 repository=repos/${GITHUB_REPOSITORY:-skyhook-k8s/skyhook}
fail() {
  echo "release-allowed: tag $tag: $*" >&2
  exit 1
}

read -r kind object < <(gh api "$repository/git/ref/tags/$tag" --jq '"\(.object.type) \(.object.sha)"') || fail "GitHub does not have it"
[ "$kind" = tag ] || fail "it is a name for a commit, without a signature: delete it, and make it again with git tag --sign"
read -r verified reason commit < <(gh api "$repository/git/tags/$object" --jq '"\(.verification.verified) \(.verification.reason) \(.object.sha)"') ||
  fail "GitHub does not show its signature"
[ "$verified" = true ] || fail "GitHub does not accept its signature ($reason): sign with a key of your GitHub account, with git tag --sign"
here=$(git rev-parse HEAD)
[ "$commit" = "$here" ] || fail "it names commit $commit, and checked out is $here"
place=$(gh api "$repository/compare/main...$commit" --jq .status)
case $place in identical | behind) ;; *) fail "commit $commit is not on main ($place): merge it first" ;; esac
runs=$(gh api "$repository/actions/workflows/ci.yaml/runs?head_sha=$commit&branch=main&event=push&status=success" --jq .total_count)
[ "$runs" -gt 0 ] || fail "CI has not passed for commit $commit on main: wait for it or repair it, and run this workflow again"
echo "$tag is signed, and CI has passed for commit $commit"

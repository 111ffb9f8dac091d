#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# Checks the Developer Certificate of Origin: each commit since BASE needs a line Signed-off-by with the address of its author.
# Merge commits carry no changes of their own and are skipped.
set -euo pipefail

base=${1:?name the commit that the changes are based on}
missing=0
for commit in $(git rev-list --no-merges "$base..HEAD"); do
  author=$(git log -1 --format='%ae' "$commit")
  if ! git log -1 --format='%(trailers:key=Signed-off-by,valueonly)' "$commit" | grep -qiF "<$author>"; then
    git log -1 --format="%h %s: no line \"Signed-off-by: %an <%ae>\"" "$commit" >&2
    missing=1
  fi
done
if [ $missing = 1 ]; then
  printf 'Sign off with: git rebase --signoff %s\n' "$base" >&2
  exit 1
fi

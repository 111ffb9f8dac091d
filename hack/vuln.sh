#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# Looks for known vulnerabilities in what the programs of the given modules call. VULNDB names another database than that of
# the Go project. When the database cannot be reached it says so and succeeds: nothing was checked.
set -euo pipefail
version=v1.9.0
for module in "$@"; do
  echo "== $module"
  if out=$(cd "$module" && go run "golang.org/x/vuln/cmd/govulncheck@$version" ${VULNDB:+-db "$VULNDB"} ./... 2>&1); then
    echo "$out" | tail -n 1
    continue
  fi
  case "$out" in
    *"govulncheck: fetching vulnerabilities:"*)
      echo "The database of vulnerabilities cannot be reached, so nothing was checked: ${out#*fetching vulnerabilities: }" | head -n 1
      exit 0
      ;;
  esac
  echo "$out"
  exit 1
done

#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# repository.sh is what the package managers of a fake host have in common. /stub/repo/NAME is a package: root/ goes to /,
# needs names other packages, upgrades and removes name those it would not leave alone, after is run when it is installed.
# /var/lib/installed/NAME has the files of one that is installed.
# shellcheck disable=SC2154 # who reads it sets excludes
set -euo pipefail
shopt -s nullglob
export LC_ALL=C
repo=/stub/repo installed=/var/lib/installed

# words NAME FILE prints what a package says of others.
words() { [ ! -f "$repo/$1/$2" ] || cat "$repo/$1/$2"; }

# updates prints NAME VERSION of what dnf and zypper would update. /stub/updates/NAME is a package with BEFORE AFTER REPOSITORY KIND; it
# is installed in the first of the versions.
updates() {
  local file name before after from kind
  for file in /stub/updates/*; do
    name=${file##*/}
    read -r before after from kind <"$file"
    if [[ $before == 1.0-1 && " ${repos[*]:-$from} " == *" $from "* && ( ${security:-false} == false || $kind == security ) ]]; then
      for held in "${excludes[@]}"; do
        # shellcheck disable=SC2053 # it is a pattern
        [[ $name != $held ]] || continue 2
      done
      echo "$name $after $from"
    fi
  done
}

# swap NAME changes the version that is installed for the other one.
swap() {
  local before after rest
  read -r before after rest <"/stub/updates/$1"
  echo "$after $before $rest" >"/stub/updates/$1"
}

# plan NAME… prints what is to be installed, dependencies first.
plan() {
  local name
  for name; do
    [ ! -f "$installed/$name" ] || continue
    if [ ! -d "$repo/$name" ]; then
      echo "Unable to locate package $name" >&2
      return 100
    fi
    # shellcheck disable=SC2046 # it is a list
    plan $(words "$name" needs)
    echo "$name"
  done
}

# needing NAME… prints the installed packages that need one of them.
needing() {
  local file name
  for file in "$installed"/*; do
    for name; do
      if grep -qw -- "$name" "$repo/${file##*/}/needs" 2>/dev/null; then echo "${file##*/}"; fi
    done
  done | sort -u
}

add() {
  local name file
  mkdir -p "$installed"
  for name; do
    (cd "$repo/$name/root" && find . -type f | sed 's/^\.//') >"$installed/$name"
    while read -r file; do
      mkdir -p "${file%/*}"
      if [[ $file != /etc/* || ! -e $file ]]; then cp -p "$repo/$name/root$file" "$file"; fi # as --force-confold
    done <"$installed/$name"
  done
  for name; do [ ! -f "$repo/$name/after" ] || "$repo/$name/after"; done
}

drop() {
  local name file
  for name; do
    [ -f "$installed/$name" ] || continue
    while read -r file; do rm -f "$file" && { rmdir -p "${file%/*}" 2>/dev/null || true; }; done <"$installed/$name"
    rm "$installed/$name"
  done
  rmdir "$installed" 2>/dev/null || true
  systemctl daemon-reload
}

#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# rpm.sh is the RHEL family by dnf, and SUSE by zypper. Without origins of the configMap, what is marked as security counts.
# shellcheck disable=SC2034,SC2154 # host.sh sets these
set -euo pipefail

list_marks=(/var/cache/dnf/last_makecache /var/cache/libdnf5 /var/cache/zypp/solv/*)

# default_origins: filter is what limits updates to the allowed ones.
default_origins() {
  case $family:${#origins[@]} in
  dnf:0) filter=(upgrade --security) ;;
  zypper:0) filter=(patch --category security) ;;
  dnf:*) filter=(upgrade "${origins[@]/#/--repo=}") ;;
  zypper:*) filter=(update "${origins[@]/#/--repo=}") ;;
  esac
  if [ "$family" = dnf ]; then filter+=("${held[@]/#/--exclude=}"); fi
}

# look asks, from the lists as they are. dnf writes beside them, so it gets links to them in our folder.
look() {
  if [ "$family" = zypper ]; then
    zypper --non-interactive --no-refresh "$@" --dry-run
    return
  fi
  mkdir -p "$scratch/dnf"
  [ ! -d /var/cache/dnf ] || cp -rsf /var/cache/dnf/. "$scratch/dnf"
  run_dnf -q -C --setopt=cachedir="$scratch/dnf" --setopt=logdir="$scratch" check-update "${@:2}"
}

# run_dnf: dnf 4 makes a folder in /var/tmp for who is not root, which a preflight cannot, before it reads its options.
run_dnf() {
  local first='' program
  program=$(type -P dnf)
  { IFS= read -r -n 200 first <"$program" || true; } 2>/dev/null
  if ((EUID == 0)) || [[ $first != '#!'*python* ]]; then
    dnf "$@"
  else
    ${first#'#!'} -c 'import sys, dnf.const
dnf.const.TMPDIR = sys.argv.pop(1) + "/"
from dnf.cli import main
main.user_main(sys.argv[1:], exit_code=True)' "$scratch" "$@"
  fi
}

# ask_zypper ARGUMENT… asks as somebody who is not root.
ask_zypper() { ZYPPTMPDIR=$scratch zypper --non-interactive --no-refresh "$@"; }

# list_updates ARGUMENT… prints the names of a list of zypper.
list_updates() {
  local list
  list=$(ask_zypper --xmlout "$@") || fail "zypper cannot tell what is pending: ${list:0:300}"
  { grep -o '<update [^>]*' <<<"$list" || true; } | sed -nE 's/.* name="([^"]*)".*/\1/p' | sort -u
}

# find_listed: pending is what zypper would install. It simulates for root only, so that what patches need is put together from lists.
find_listed() {
  local text name
  local -a patches=()
  if [ "${filter[0]}" = patch ]; then
    text=$(list_updates list-patches "${filter[@]:1}")
    [ -z "$text" ] || mapfile -t patches <<<"${text//$'\n'/$'\npatch:'}"
    list_updates list-updates --all >"$scratch/updates"
    text=
    if ((${#patches[@]} > 0)); then
      text=$(ask_zypper info --conflicts "patch:${patches[0]}" "${patches[@]:1}")
      text=$(sed -nE 's/^(Conflicts *:)? +([^ ]+) < .*/\2/p' <<<"$text" | sed -E 's/\.(noarch|x86_64|i[3-6]86|aarch64|ppc64le|s390x)$//' | sort -u |
        join - "$scratch/updates")
    fi
  else
    text=$(list_updates list-updates --all "${filter[@]:1}")
  fi
  pending=()
  for name in $text; do is_held "$name" || pending+=("$name newer"); done
}

refresh() {
  if [ "$family" = dnf ]; then dnf -y makecache 9<&-; else zypper --non-interactive refresh 9<&-; fi ||
    fail "$family cannot fetch the lists of its repositories; repair or disable the one that is named above"
}

installed() { rpm -qa --queryformat '%{NAME} %{VERSION}-%{RELEASE}.%{ARCH}\n' | sort; }

# find_pending: pending is what would be installed, as NAME VERSION.
find_pending() {
  local plan name status=0
  if [ "$family" = zypper ] && ((EUID != 0)); then
    find_listed
    return
  fi
  plan=$(look "${filter[@]}") || status=$?
  case $family:$status in dnf:0 | dnf:100 | zypper:0 | zypper:10[0-3]) ;; *) fail "$family cannot tell what is pending: ${plan:0:300}" ;; esac
  if [ "$family" = dnf ]; then
    plan=$(sed -nE '/^Obsoleting/,$d; s/^([^ ]+)\.[^ .]+ +([^ ]+) +[^ ]+ *$/\1 \2/p' <<<"$plan")
  else
    plan=$(sed -n '/ going to be upgraded:$/,/^$/s/^ *//p; / new package.* going to be installed:$/,/^$/s/^ *//p' <<<"$plan" |
      grep -v ':$' | tr -s ' ' '\n' | sed -n 's/.$/& newer/p')
  fi
  pending=()
  while read -r name; do
    if [ -n "$name" ] && ! is_held "${name% *}"; then pending+=("$name"); fi
  done <<<"$plan"
}

install_pending() {
  local status=0
  if [ "$family" = dnf ]; then
    dnf -y --setopt=install_weak_deps=False --setopt=clean_requirements_on_remove=False "${filter[@]}" 9<&-
  else
    zypper --non-interactive update --no-recommends --auto-agree-with-licenses "${pending[@]% *}" 9<&- || status=$?
    case $status in 0 | 102 | 103) ;; *) return "$status" ;; esac # the others mean that something restarts
  fi
}

is_kernel() { [[ $1 == kernel || $1 == kernel-core || $1 == kernel-uek-core || $1 == kernel-default* ]]; }

files_of() { rpm -ql "$@" 2>/dev/null || true; }

kernel_package() { return 1; } # its release is its version

find_block() {
  local lock
  for lock in /var/lib/rpm/.rpm.lock /usr/lib/sysimage/rpm/.rpm.lock; do
    if lock_holder "$lock"; then
      REPLY="$REPLY holds $lock"
      return
    fi
  done
  return 1
}

is_interrupted() { return 1; }

repair() { :; }

put_back() {
  local -a names=()
  while (($# > 0)); do names+=("$1-$2") && shift 2; done
  if [ "$family" = dnf ]; then
    dnf -y --skip-broken downgrade "${names[@]}" 9<&-
  else
    zypper --non-interactive install --oldpackage "${names[@]}" 9<&-
  fi
}

exact() { REPLY=$1-$2; } # several versions of a kernel are there

remove_new() { rpm -e "$@" || warn "$* stays: something else needs it"; }

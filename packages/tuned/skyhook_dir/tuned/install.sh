#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# install.sh installs TuneD and takes it off again, with the host's package manager. Nothing else is upgraded or removed:
# what would be is found out first.
# shellcheck disable=SC2154 # host.sh sets these
set -euo pipefail

# find_family: family is apt, dnf or yum.
find_family() {
  local ID='' ID_LIKE='' word
  if [ -f /etc/os-release ]; then
    # shellcheck source=/dev/null
    . /etc/os-release
  fi
  family=
  for word in $ID $ID_LIKE; do
    case $word in
    debian | ubuntu) family=apt ;;
    rhel | rocky | almalinux | centos | fedora | amzn | ol) if command -v dnf >/dev/null; then family=dnf; else family=yum; fi ;;
    esac
    [ -z "$family" ] || return 0
  done
  fail "this host is \"${ID:-unknown}\", and TuneD can be installed on Debian, Ubuntu and the RHEL family (rhel, rocky, almalinux, centos, fedora, amzn, ol); install TuneD there by other means, and the package will use it"
}

# Services are left alone after an installation: needrestart would restart containerd or the kubelet.
debs() {
  DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 NEEDRESTART_MODE=l \
    apt-get -y -o DPkg::Lock::Timeout=300 -o APT::Keep-Downloaded-Packages=false --no-install-recommends \
    -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "$@" 9<&- # what is started on the way must not keep the lock
}

rpms() { "$family" -y --setopt=install_weak_deps=False --setopt=clean_requirements_on_remove=False "$@" 9<&-; }

# installed prints the names of all packages of the host.
installed() {
  case $family in
  apt) dpkg-query -W -f '${Package} ${db:Status-Status}\n' | sed -n 's/ installed$//p' | sort -u ;;
  *) rpm -qa --queryformat '%{NAME}\n' | sort -u ;;
  esac
}

# would_change ACTION NAME… prints what else would be upgraded, replaced or removed.
would_change() {
  case $family in
  apt) debs -s "$@" | sed -nE 's/^Inst ([^ ]+) \[.*/\1/p; s/^(Remv|Purg) ([^ ]+) .*/\2/p' ;;
  # It ends as if it had failed, because it is told not to go on.
  *) { "$family" --assumeno --setopt=install_weak_deps=False --setopt=clean_requirements_on_remove=False "$@" 2>&1 || true; } | rpms_touched ;;
  esac | sort -u
}

# rpms_touched reads the table of a transaction: a heading, then rows that begin with a blank and a name.
rpms_touched() {
  local line touched=false
  while IFS= read -r line; do
    case $line in
    [' ']*) ;;
    Upgrading*: | Updating*: | Downgrading*: | Removing*: | Replacing*:) touched=true && continue ;;
    *) touched=false ;;
    esac
    if [ "$touched" = true ]; then
      line=${line#"${line%%[![:space:]]*}"}
      printf '%s\n' "${line%%[[:space:]]*}"
    fi
  done
}

# except NAME… prints the lines of standard input that are none of the names.
except() {
  local line name
  while IFS= read -r line; do
    for name in '' "$@"; do [ "$line" != "$name" ] || continue 2; done
    printf '%s\n' "$line"
  done
}

# one_line joins lines.
one_line() { tr '\n' ' ' | sed 's/ $//'; }

# install_tuned installs TuneD, and remembers what came with it.
install_tuned() {
  local others
  if [ "$family" = apt ]; then
    debs update || warn "apt-get update failed; the lists that are there are used"
  fi
  others=$(would_change install tuned | one_line)
  [ -z "$others" ] || fail "to install TuneD, these would be upgraded or removed: $others; upgrade them first, at a time of your choice"
  # What an attempt that was cut short has recorded is older, so it counts.
  [ -f "$state/listing" ] || installed | note listing
  if [ ! -f "$state/folders" ]; then
    rm -rf "${state:?}/etc-tuned"
    [ ! -d /etc/tuned ] || cp -a /etc/tuned "$state/etc-tuned"
    in_folders | note folders
  fi
  case $family in
  apt) debs install tuned ;;
  *) rpms install tuned ;;
  esac
  have_tuned || fail "TuneD was installed, and this host has no tuned and tuned-adm all the same"
  installed | except_listed | note packages
  forget listing
}

# except_listed prints the lines of standard input that are not in the listing.
except_listed() { grep -vxF -f "$state/listing" || true; }

# upgrade_tuned brings TuneD, and nothing else, to what the host's repositories have.
upgrade_tuned() {
  local all others
  if [ "$family" = apt ]; then
    debs update || warn "apt-get update failed; the lists that are there are used"
    all=$(would_change install --only-upgrade tuned)
  else
    all=$(would_change upgrade tuned)
  fi
  others=$(except tuned <<<"$all" | one_line)
  if ! grep -qx tuned <<<"$all"; then
    say "the host's repositories have no newer TuneD"
  elif [ -n "$others" ]; then
    warn "a newer TuneD would also upgrade or remove $others; it is left as it is"
  elif [ "$family" = apt ]; then
    debs install --only-upgrade tuned
  else
    rpms upgrade tuned
  fi
}

# plan_removal: removal is what came with TuneD and is there still, as far as nothing else needs it by now. It fails if
# something else needs TuneD itself.
plan_removal() {
  local others
  verb=remove removal=()
  [ "$family" != apt ] || verb=purge
  mapfile -t removal <<<"$(installed | grep -xF -f "$state/packages" || true)"
  if [ -z "${removal[0]}" ]; then
    removal=()
    return
  fi
  others=$(would_change "$verb" "${removal[@]}" | except "${removal[@]}" | one_line)
  [ -n "$others" ] || return 0
  say "not everything that came with TuneD goes: $others would go with it"
  removal=(tuned)
  others=$(would_change "$verb" tuned | except tuned | one_line)
  [ -z "$others" ] || return 1
}

# remove_tuned removes what was planned, and what TuneD has left behind.
remove_tuned() {
  if ((${#removal[@]} > 0)); then
    case $family in
    apt) debs "$verb" "${removal[@]}" ;;
    *) rpms "$verb" "${removal[@]}" ;;
    esac
  fi
  clear_folders
  clear_boot
}

# in_folders prints everything in TuneD's folders, what is in a folder before the folder.
in_folders() {
  local dir
  for dir in /etc/tuned /var/log/tuned /var/lib/tuned; do
    if [ -d "$dir" ]; then find "$dir" -depth; fi
  done
}

# clear_folders removes what TuneD has written beside its own files, and puts back what was in /etc/tuned before it came.
clear_folders() {
  local path
  in_folders | while IFS= read -r path; do
    grep -qxF -e "$path" "$state/folders" && continue
    if [ -d "$path" ] && [ ! -L "$path" ]; then rmdir "$path"; else rm -f "$path"; fi
  done
  rm -rf /run/tuned
  [ ! -d "$state/etc-tuned" ] || cp -a "$state/etc-tuned/." /etc/tuned/
}

# clear_boot takes TuneD's variables out of the files that GRUB's menu is made from. They are empty by now.
clear_boot() {
  # shellcheck disable=SC2016 # the file has it like this
  local file=/etc/default/grub pattern='^GRUB_(CMDLINE_LINUX_DEFAULT|INITRD_OVERLAY)=.*\\\$tuned_(params|initrd)"$'
  if [ -f "$file" ] && grep -qE "$pattern" "$file"; then
    cp -p "$file" "$file.skyhook-new"
    grep -vE "$pattern" "$file" >"$file.skyhook-new"
    mv -f "$file.skyhook-new" "$file"
    say "removed TuneD's lines from $file"
  fi
  if command -v update-grub >/dev/null && grep -q tuned_params /boot/grub/grub.cfg 2>/dev/null; then
    update-grub || fail "update-grub failed; the menu still speaks of TuneD, and the next attempt makes it again"
  fi
}

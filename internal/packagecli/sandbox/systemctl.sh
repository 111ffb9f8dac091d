#!/bin/sh
# The systemctl of a test host. Units are real files. Running them is a word in a file, and every call
# that changes something is written down.
state=/run/skyhook-trial
system=/etc/systemd/system
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# file UNIT: where the unit's file is; a template stands for its instances.
file() {
  for name in "$1" "$(echo "$1" | sed 's/@[^.]*\./@./')"; do
    for dir in $system /run/systemd/system /usr/local/lib/systemd/system /usr/lib/systemd/system /lib/systemd/system; do
      if [ -e "$dir/$name" ] || [ -L "$dir/$name" ]; then
        echo "$dir/$name"
        return 0
      fi
    done
  done
  return 1
}

full() { case $1 in *.service | *.socket | *.timer | *.target | *.mount | *.path | *.slice | *.swap | *.automount) echo "$1" ;; *) echo "$1.service" ;; esac; }

load() {
  at=$(file "$1") || { echo not-found; return; }
  [ "$(readlink "$at")" != /dev/null ] || { echo masked; return; }
  echo loaded
}

# need UNIT VERB: fails as systemd does when the unit cannot be used.
need() {
  case $(load "$1") in
  loaded) return 0 ;;
  masked) echo "Failed to $2 $1: Unit $1 is masked." >&2; exit 1 ;;
  esac
  echo "Failed to $2 $1: Unit $1 not found." >&2
  exit 5
}

active() { cat "$state/units/$1" 2>/dev/null || echo inactive; }

# wanted UNIT: another unit pulls it in at boot.
wanted() {
  for link in "$system"/*.wants/"$1" "$system"/*.requires/"$1"; do
    [ ! -L "$link" ] || return 0
  done
  return 1
}

enabled() {
  at=$(file "$1") || { echo not-found; return; }
  if [ "$(readlink "$at")" = /dev/null ]; then
    echo masked
  elif wanted "$1"; then
    echo enabled
  elif ! grep -q '^\[Install\]' "$at"; then
    echo static
  else
    echo disabled
  fi
}

# run UNIT: a new run of it, with a number of its own.
run() {
  n=$(($(cat $state/runs 2>/dev/null || echo 0) + 1))
  echo $n >$state/runs
  echo active >"$state/units/$1"
  echo $n >"$state/lives/$1"
  if [ "$1" = systemd-sysctl.service ] && command -v sysctl >/dev/null; then sysctl --system >/dev/null; fi
}

# settings UNIT: the lines of its file and of its drop-ins, in the order they count.
settings() {
  at=$(file "$1") || return 0
  cat "$at"
  for dir in /usr/lib/systemd/system /run/systemd/system $system; do
    cat "$dir/$1".d/*.conf 2>/dev/null
  done
}

install_words() { sed -n '/^\[Install\]/,/^\[[^I]/p' "$(file "$1")" | sed -n "s/^$2=//p"; }

wire() {
  for kind in wants:WantedBy requires:RequiredBy; do
    for target in $(install_words "$1" "${kind#*:}"); do
      mkdir -p "$system/$target.${kind%%:*}"
      ln -sf "$(file "$1")" "$system/$target.${kind%%:*}/$1"
    done
  done
  for alias in $(install_words "$1" Alias); do ln -sf "$(file "$1")" "$system/$alias"; done
}

unwire() {
  for link in "$system"/*.wants/"$1" "$system"/*.requires/"$1"; do
    [ -L "$link" ] || continue
    rm -f "$link"
    rmdir "$(dirname "$link")" 2>/dev/null
  done
  if at=$(file "$1"); then
    for alias in $(install_words "$1" Alias); do rm -f "$system/$alias"; done
  fi
}

property() { # UNIT NAME
  life=$(cat "$state/lives/$1" 2>/dev/null || echo 0)
  is=$(active "$1")
  case $2 in
  Id | Names) echo "$1" ;;
  LoadState) load "$1" ;;
  ActiveState) echo "$is" ;;
  SubState) case $is in active) echo running ;; *) echo dead ;; esac ;;
  UnitFileState) enabled "$1" ;;
  FragmentPath) file "$1" ;;
  MainPID) [ "$is" = active ] && echo $((1000 + life)) || echo 0 ;;
  InvocationID) printf '%032x\n' "$life" ;;
  ActiveEnterTimestampMonotonic) echo "${life}000000" ;;
  Job | NRestarts) echo 0 ;;
  RefuseManualStop | RefuseManualStart | Transient | NeedDaemonReload) echo no ;;
  Result) echo success ;;
  *) settings "$1" | sed -n "s/^$2=//p" | tail -n 1 ;;
  esac
}

# Options come in any place.
quiet='' now='' value='' properties='' words=''
while [ $# -gt 0 ]; do
  case $1 in
  -q | --quiet) quiet=1 ;;
  --now) now=1 ;;
  --value) value=1 ;;
  -p | --property) properties="$properties,$2"; shift ;;
  --property=*) properties="$properties,${1#*=}" ;;
  -p*) properties="$properties,${1#-p}" ;;
  -t | -n | -o) shift ;;
  -*) ;;
  *) words="$words $1" ;;
  esac
  shift
done
case ${0##*/} in reboot | shutdown | poweroff | halt) words="${0##*/} $words" ;; esac
set -f
# shellcheck disable=SC2086 # words are to be split, and names of units have no blanks
set -- $words
set +f
verb=${1:-list-units}
[ $# = 0 ] || shift
units=''
for u; do units="$units $(full "$u")"; done

case $verb in
show | status | is-active | is-enabled | is-failed | is-system-running | list-units | list-unit-files | cat | get-default) ;;
*) echo "$verb${now:+ --now}${units}" >>$state/calls ;;
esac

case $verb in
start | restart | reload-or-restart | stop | reload | try-restart | condrestart | kill | enable | disable | reenable | mask | unmask)
  for u in $units; do
    case $verb in
    start)
      need "$u" start
      [ "$(active "$u")" = active ] || run "$u"
      ;;
    restart | reload-or-restart) need "$u" restart; run "$u" ;;
    try-restart | condrestart) [ "$(active "$u")" != active ] || run "$u" ;;
    reload)
      need "$u" reload
      [ "$(active "$u")" = active ] || { echo "Job for $u failed: it is not active." >&2; exit 1; }
      ;;
    stop | kill)
      [ "$(load "$u")" != not-found ] || [ -e "$state/units/$u" ] || { echo "Failed to stop $u: Unit $u not loaded." >&2; exit 5; }
      rm -f "$state/units/$u"
      ;;
    enable | reenable)
      need "$u" enable
      wire "$u"
      [ -z "$now" ] || run "$u"
      ;;
    disable)
      [ "$(load "$u")" != not-found ] || { echo "Failed to disable unit: Unit file $u does not exist." >&2; exit 1; }
      unwire "$u"
      [ -z "$now" ] || rm -f "$state/units/$u"
      ;;
    mask) ln -sf /dev/null "$system/$u"; [ -z "$now" ] || rm -f "$state/units/$u" ;;
    unmask) [ "$(readlink "$system/$u")" != /dev/null ] || rm -f "$system/$u" ;;
    esac
  done
  ;;
is-active)
  rc=3
  for u in $units; do
    is=$(active "$u")
    [ -n "$quiet" ] || echo "$is"
    [ "$is" != active ] || rc=0
  done
  exit $rc
  ;;
is-failed) exit 1 ;;
is-enabled)
  rc=1
  for u in $units; do
    is=$(enabled "$u")
    [ -n "$quiet" ] || echo "$is"
    case $is in enabled | static) rc=0 ;; esac
  done
  exit $rc
  ;;
status)
  for u in $units; do
    [ "$(load "$u")" != not-found ] || { echo "Unit $u could not be found." >&2; exit 4; }
    echo "$u: $(active "$u"), $(enabled "$u")"
    [ "$(active "$u")" = active ] || exit 3
  done
  ;;
show)
  [ -n "$properties" ] || properties=Id,LoadState,ActiveState,SubState,UnitFileState,FragmentPath,MainPID
  for u in $units; do
    for p in $(echo "$properties" | tr , ' '); do
      if [ -n "$value" ]; then property "$u" "$p"; else echo "$p=$(property "$u" "$p")"; fi
    done
  done
  ;;
cat)
  for u in $units; do need "$u" cat; settings "$u"; done
  ;;
list-units)
  for u in "$state"/units/*; do
    [ -e "$u" ] || continue
    echo "${u##*/} loaded $(cat "$u") running ${u##*/}"
  done
  ;;
list-unit-files)
  for dir in $system /usr/lib/systemd/system; do
    for at in "$dir"/*.*; do
      [ -f "$at" ] || [ -L "$at" ] || continue
      [ $# = 0 ] || case " $units " in *" ${at##*/} "*) ;; *) continue ;; esac
      echo "${at##*/} $(enabled "${at##*/}") enabled"
    done
  done | sort -u
  ;;
is-system-running) echo running ;;
get-default) echo multi-user.target ;;
daemon-reload | daemon-reexec | reset-failed | preset | set-property) ;;
reboot | shutdown | poweroff | halt) : >$state/reboot ;;
*)
  echo "Unknown command verb '$verb'." >&2
  exit 1
  ;;
esac

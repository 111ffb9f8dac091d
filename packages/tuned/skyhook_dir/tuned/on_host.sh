#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# on_host.sh, the same in os-update, tuned and tuning, has systemd run a step that changes the host when the step's pod may
# not: package managers and boot loaders need all of the host. host.sh reads it before anything else happens.
set -euo pipefail
if [ -z "${SKYHOOK_PRIVILEGES:-}" ] || ((EUID != 0)) || [ -n "${SKYHOOK_ON_HOST:-}" ]; then return; fi

step=${0##*/}
unit=${SKYHOOK_RESOURCE_ID:?is set by the agent}
unit=${unit#*_}
unit=skyhook-${unit%%_*}-${step%.sh}.service
files=${SKYHOOK_DIR:?is set by the agent}/on-host # .log and .status

# is_gone: systemd knows no unit that has ended. It does not answer while an update replaces it, which means nothing; for the same
# reason systemd-run is not what waits for the end, it would lose its connection.
is_gone() { [ "$(systemctl show -p LoadState "$unit" 2>/dev/null)" = LoadState=not-found ]; }

said=$(systemctl show -p LoadState "$unit" 2>&1) || true
if [[ $said != *LoadState=* ]]; then
  echo "error: the host's systemd cannot be asked to run $step, and this pod may not change the host itself (${said:-systemctl shows nothing}); select nodes that run systemd, and give the package the privilege services" >&2
  exit 1
fi
exec 3</dev/null
trap 'rm -f "$files".*' EXIT
# At the timeout, or when the pod is deleted. sleep and cat end by the same signal, which is no failure of theirs.
trap 'systemctl stop "$unit" || true; cat <&3; exit 143' TERM

# When the pod of an earlier attempt was killed, the attempt goes on. It is awaited, because a package manager that is cut short
# leaves a host half installed; then the step runs again, which finds its work done.
is_gone || echo "an earlier attempt of $step is still at work on this host: waiting for its end"
until is_gone; do sleep 0.5 || true; done

rm -f "$files".*
(umask 077 && : >"$files.log")
exec 3<"$files.log"
# Every user of the host can read the environment of a unit: what is not named here may be a secret, and stays behind.
environment=(--setenv=SKYHOOK_ON_HOST=1)
for name in PATH HOME LANG SKYHOOK_DIR STEP_ROOT SKYHOOK_RESOURCE_ID SKYHOOK_RUN_ID SKYHOOK_NODE_ORDER SKYHOOK_DEADLINE \
  PREVIOUS_VERSION CURRENT_VERSION INTERRUPT TUNED_WAIT SET_X; do
  [ -z "${!name+x}" ] || environment+=("--setenv=$name=${!name}")
done
for name in {http,https,ftp,no}_proxy {HTTP,HTTPS,NO}_PROXY; do
  case ${!name-} in
  '') ;;
  *@*) echo "warning: $name has a password and is not passed on: put it into the settings of the host's package manager" ;;
  *) environment+=("--setenv=$name=${!name}") ;;
  esac
done
# shellcheck disable=SC2016 # the inner shell expands it
command=(/bin/bash -c '"$@" >"$0.log" 2>&1 </dev/null; echo $? >"$0.status"' "$files" /bin/bash "$0" "$@")
# systemd expands variables too, so $ is doubled.
systemd-run --quiet --collect --unit="$unit" -p WorkingDirectory="$SKYHOOK_DIR" "${environment[@]}" "${command[@]//\$/\$\$}" || {
  echo "error: the host's systemd did not start $step, see above" >&2
  exit 1
}
until is_gone; do
  cat <&3 || true
  sleep 0.5 || true
done
cat <&3
status=$(cat "$files.status" 2>/dev/null) || true
if [ -z "$status" ]; then
  echo "error: $step was ended on the host before it was done, see journalctl -u $unit" >&2
  status=1
fi
exit "$status"

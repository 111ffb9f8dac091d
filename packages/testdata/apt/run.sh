#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# run.sh ROOT WORK PACKAGE SCENARIO AGENT runs a scenario in namespaces of its own, on a throw-away copy of a Debian root.
set -euo pipefail
host=$2/host
mkdir -p "$2"/{upper,work,host}
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$host"
mount -t proc proc "$host/proc"
mount --rbind /dev "$host/dev"
mkdir -p "$host/package" "$host/scenario" "$host/cgroup"
cp -r "$3/." "$host/package"
cp "${0%/*}"/*.sh "$5" "$host/scenario"
mount -t cgroup2 none "$host/cgroup"
cd "$host" # processes name files from the root of their mounts, so that a chroot would not do
mkdir -p old
pivot_root . old
# shellcheck disable=SC2016 # the inner shell expands it
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 SCENARIO="$4" \
  chroot . bash -c 'umount -l /old && exec bash "/scenario/$SCENARIO.sh"'

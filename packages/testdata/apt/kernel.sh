#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# Kernels: one that is pending, one that is installed and does not run, one whose package was built again.
# shellcheck source=/dev/null disable=SC2154 # it is checked by itself
. /scenario/host.sh
kernel 6.1.0-9-amd64 6.1.1-1
image() { rm -rf /files && mkdir -p /files/boot && echo "$1" >"/files/boot/vmlinuz-$1" && add "$2" "linux-image-$1" "$3"; }
image 6.1.0-9-amd64 Debian 6.1.1-1
image 6.1.0-11-cloud-amd64 Debian 6.1.9-1
rm -rf /files
add Debian linux-image-amd64 6.1.1-1 linux-image-6.1.0-9-amd64
publish
apt-get -q -y install linux-image-amd64 linux-image-6.1.0-11-cloud-amd64 >/dev/null
answers "none: no allowed update is pending, and nothing runs with replaced files"

image 6.1.0-10-amd64 Debian-Security 6.1.10-1
rm -rf /files
add Debian-Security linux-image-amd64 6.1.10-1 linux-image-6.1.0-10-amd64
publish
answers "reboot: 2 allowed updates pending, among them linux-image-amd64: the kernel restarts with the node"
succeeds update
succeeds update_check
says "^warning: kernel 6.1.0-9-amd64 runs and 6.1.0-10-amd64 is installed"
fails effect_check
says "^error: kernel 6.1.0-9-amd64 runs and 6.1.0-10-amd64 is installed: restart the node"
answers "reboot: kernel 6.1.0-9-amd64 runs and 6.1.0-10-amd64 is installed"
kernel 6.1.0-10-amd64 6.1.10-1
succeeds effect_check
silent
kernel 6.1.0-10-amd64 6.1.9-1
answers "reboot: kernel 6.1.0-10-amd64 runs as it was before 6.1.10-1 of its package was installed"

# A kernel that no package brought is not compared.
kernel 6.18.0-custom 1
answers "none: no allowed update is pending, and nothing runs with replaced files"

# The kernel that runs is not removed, another one is.
cp -r /var/lib/skyhook-packages /kept
kernel 6.1.0-10-amd64 6.1.10-1
succeeds undo
says "linux-image-6.1.0-10-amd64 stays: it is the kernel that runs"
has linux-image-6.1.0-10-amd64 6.1.10-1 && has linux-image-amd64 6.1.1-1
cp -r /kept /var/lib/skyhook-packages
kernel 6.1.0-9-amd64 6.1.1-1
succeeds undo
has linux-image-6.1.0-10-amd64 && has linux-image-amd64 6.1.1-1

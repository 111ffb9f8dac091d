#!/bin/bash
# Runs after apply and upgrade, and whenever the configMap of the Skyhook changed. What is no longer in the configMap is
# undone.
set -euo pipefail

wanted=$SKYHOOK_DIR/configmaps/settings.conf
there=/opt/<<.Name>>/settings.conf

if [ ! -e "$wanted" ]; then
  rm -f "$there"
elif ! cmp -s "$wanted" "$there"; then
  install -m 0644 "$wanted" "$there"
fi

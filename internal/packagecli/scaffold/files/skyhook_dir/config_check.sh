#!/bin/bash
# Fails when the host does not have what the configMap says.
set -euo pipefail

wanted=$SKYHOOK_DIR/configmaps/settings.conf
there=/opt/<<.Name>>/settings.conf

if [ -e "$wanted" ]; then
  cmp "$wanted" "$there"
else
  test ! -e "$there"
fi

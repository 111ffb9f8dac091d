#!/bin/bash
# Runs when the package goes, or when its version falls. It also copes with a host on which apply never ran or failed.
set -euo pipefail

rm -f /opt/<<.Name>>/settings.conf
if [ -d /opt/<<.Name>> ]; then
  rmdir --ignore-fail-on-non-empty /opt/<<.Name>>
fi

#!/bin/bash
# Fails when the package left something.
set -euo pipefail

test ! -e /opt/<<.Name>>/settings.conf

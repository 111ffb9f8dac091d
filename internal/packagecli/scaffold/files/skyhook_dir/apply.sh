#!/bin/bash
# Runs when the package comes to a host. It may run again at any time, and then changes nothing.
set -euo pipefail

install -d -m 0755 /opt/<<.Name>>

#!/bin/bash
# Fails when the host does not have what this version installs.
set -euo pipefail

"$STEP_ROOT/apply_check.sh"

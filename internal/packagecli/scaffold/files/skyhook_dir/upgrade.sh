#!/bin/bash
# Runs instead of apply when the version rises; config comes after it. PREVIOUS_VERSION and CURRENT_VERSION say from
# where to where. What apply installs has to be installed here too, and what only older versions had is removed.
set -euo pipefail

"$STEP_ROOT/apply.sh"

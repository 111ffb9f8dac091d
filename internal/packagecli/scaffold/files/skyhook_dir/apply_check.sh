#!/bin/bash
# Fails when what apply did is not there. Look at what really is, not at what the script wrote down.
set -euo pipefail

test -d /opt/<<.Name>>

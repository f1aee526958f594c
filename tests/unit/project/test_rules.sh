#!/usr/bin/env bash
# The codes of rules, scenarios, promises and faults: docs/rules.md defines each code in the tree, a test names each
# built one, and users see none. check_rules.py explains the checks, and first finds violations that it plants.
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: python3 is needed to read the sources"; exit 77; }
here=$(dirname "$0")
exec python3 -B "$here/check_rules.py" "$(realpath "${TERN_SOURCE:-$here/../../..}")"

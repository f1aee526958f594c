#!/usr/bin/env bash
# The codes of rules, scenarios, promises and faults: docs/rules.md defines each that stands in the tree, a test names
# each that is built, and users see none. check_rules.py says how, and begins by finding violations that it plants.
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: python3 is needed to read the sources"; exit 77; }
here=$(dirname "$0")
exec python3 -B "$here/check_rules.py" "$(realpath "${TERN_SOURCE:-$here/../../..}")"

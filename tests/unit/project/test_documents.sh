#!/usr/bin/env bash
# The documents agree with the tree: links lead somewhere, named files exist, and quoted texts in the table of troubles
# are texts of the programs. check_documents.py first finds violations that it plants.
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: python3 is needed to read the documents"; exit 77; }
here=$(dirname "$0")
exec python3 -B "$here/check_documents.py" "$(realpath "${TERN_SOURCE:-$here/../../..}")"

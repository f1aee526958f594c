#!/usr/bin/env bash
# The operators of tests/mutate and its list of equivalent mutants. `mutate self-test` also plants a mutant, which needs
# a build of its own: tests/run.sh --full runs that.
set -euo pipefail
if ! command -v python3 >/dev/null; then
    echo "skipped: no python3"
    exit 77
fi
exec python3 "${TERN_SOURCE:?the sources}/tests/mutate/mutate" self-test --quick

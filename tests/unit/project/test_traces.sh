#!/usr/bin/env bash
# The environment of a test run says where the traces lie. A value that a test gets at configure time
# overrides the environment of ctest, so TERN_TRACES may not be among these; and no script may have
# a default of its own, which would lie outside the repository: only .ci/run sets it.
set -euo pipefail
build=${TERN_BUILD:?the build folder}
source_dir=$(realpath "${TERN_SOURCE:-$(dirname "$0")/../../..}")

grep -q 'TERN_SOURCE=' "$build/tests/e2e/CTestTestfile.cmake" || { echo "FAILED: where are the tests' variables?"; exit 1; }
if grep -rl 'TERN_TRACES' --include=CTestTestfile.cmake "$build/tests"; then
    echo "FAILED: TERN_TRACES is set at configure time"
    exit 1
fi

defaults() { # TREE: lines that give TERN_TRACES a default that is not empty, or name the folder of the traces
    grep -rnE 'TERN_TRACES:[-=][^}]|shared/''traces' "$1" --include='*.sh' --include='*.py' --include='*.c' --include='*.h' \
        --include='CMakeLists.txt' --exclude-dir='build*' --exclude-dir='.*' || true
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf 'traces=${%s:-$here/traces}\n' TERN_TRACES >"$work/x.sh"
[[ -n $(defaults "$work") ]] || { echo "self-test: a default was not found"; exit 1; }
found=$(defaults "$source_dir")
if [[ -n $found ]]; then
    printf 'FAILED: a default outside the repository:\n%s\n' "$found"
    exit 1
fi
echo "all passed"

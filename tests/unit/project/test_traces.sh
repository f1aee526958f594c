#!/usr/bin/env bash
# What is set for a test at configure time wins over the environment of ctest, so TERN_TRACES may not be among it: who
# runs ctest says where the traces lie.
set -euo pipefail
build=${TERN_BUILD:?the build folder}

grep -q 'TERN_SOURCE=' "$build/tests/e2e/CTestTestfile.cmake" || { echo "FAILED: where are the tests' variables?"; exit 1; }
if grep -rl 'TERN_TRACES' --include=CTestTestfile.cmake "$build/tests"; then
    echo "FAILED: TERN_TRACES is set at configure time"
    exit 1
fi
echo "all passed"

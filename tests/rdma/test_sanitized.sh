#!/usr/bin/env bash
# The transport over soft-RoCE in one guest, built with sanitizers. Run by ctest, label rdma, in such a build alone.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/judge_lib.sh"
need_build
try "one guest" --timeout 1200 --mem 1536 one ". '$here/two_devices.sh' && second_device &&
    \"\$TERN_BUILD/tests/test_xfer_verbs\" && \"\$TERN_BUILD/tests/test_xfer_push\""
unexpected SKIPPED 'ERROR: AddressSanitizer' 'runtime error'
expect 0 'fault=6 .*landed_in_live=0' 'PASSED'
judge

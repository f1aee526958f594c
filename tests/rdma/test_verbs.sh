#!/usr/bin/env bash
# Pages by RDMA READ over soft-RoCE, in one guest: the transport by itself (stop, lost queue pair, forged key, damage),
# a source that dies or hangs in mid-transfer, and two daemons with tern-replay between them; the transport's throughput
# at 64 KiB beside that of ib_read_bw. Run by ctest, label rdma. Emulated: the ratio says something, the figures nothing.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export TERN_BUILD=${TERN_BUILD:-$here/../../build}
export TERN_BIN=${TERN_BIN:-$TERN_BUILD/bin}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! command -v ib_read_bw >/dev/null; then
    echo "skipped: needs ib_read_bw (package perftest)"
    exit 77
fi
if ! libraries=$(ldd "$TERN_BIN/ternd"); then
    echo "FAILED: no ternd in $TERN_BIN"
    exit 1
fi
if [[ $libraries != *libibverbs* ]]; then
    echo "skipped: this build has no RDMA (TERN_VERBS)"
    exit 77
fi

status=0
"$here/lab.sh" --timeout 240 one "\"\$TERN_BUILD/tests/test_xfer_verbs\" &&
    TERN_PEER_TRANSPORT=verbs \"\$TERN_BUILD/tests/e2e_test_peer_killed\" && bash '$here/verbs_replay.sh' && bash '$here/perftest.sh' one ib_read_bw" >"$log" 2>&1 || status=$?
cat "$log"
[[ $status -eq 77 ]] && exit 77
failed=0
[[ $status -eq 0 ]] || { echo "FAILED: exit status $status" && failed=1; }
grep -q SKIPPED "$log" && echo "FAILED: a case was skipped in the guest" && failed=1
for text in 'verbs_replay: ok' 'wrong_bytes=0'; do
    grep -q "$text" "$log" || { echo "FAILED: not printed: $text" && failed=1; }
done
ours=$(sed -nE 's/^verbs_pull .*mb_per_s=([0-9.]+).*/\1/p' "$log")
raw=$(sed -nE 's/^perftest ib_read_bw .*mb_per_s=([0-9.]+).*/\1/p' "$log")
echo "at 64 KiB, emulated: verbs_pull ${ours:-none} MB/s, ib_read_bw ${raw:-none} MB/s"
[[ -n $ours && -n $raw ]] || failed=1
exit "$failed"

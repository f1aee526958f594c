#!/usr/bin/env bash
# In one lab guest: two daemons with transport verbs, and tern-replay between them. Every moved page
# must have moved by RDMA, and no byte may be wrong.
. "$(dirname "${BASH_SOURCE[0]}")/verbs_lib.sh"

daemon prefill 7701 decode "$LAB_IP:7702"
daemon decode 7702 prefill "$LAB_IP:7701" "$@"
wait_for 120 "a path" goes_by decode verbs
ctl decode doctor || fail "doctor"
ctl decode peers
"$TERN_BIN/tern-replay" --prefill "$DIR/prefill/default.sock,$DIR/prefill/admin.sock" \
    --decode "$DIR/decode/default.sock,$DIR/decode/admin.sock" --profile "${PROFILE:-tiny-state}" \
    --sessions "${SESSIONS:-8}" --turns "${TURNS:-4}" --concurrency 2 --json >"$DIR/replay.json" 2>"$DIR/replay.err" ||
    fail "tern-replay: $(cat "$DIR/replay.json" "$DIR/replay.err")"
figures "$DIR/replay.json" requests transferred_pages verified_pages wrong_bytes failed_requests leaked_pages transfer_gb_s elapsed_s
status=$(ctl decode status --json)
status=${status#*'"verbs": {'}
echo "verbs:" ${status%%\}*}
all_by_verbs decode
grep -h event=transport "$DIR"/*/log
stop_daemons
echo "verbs_replay: ok"

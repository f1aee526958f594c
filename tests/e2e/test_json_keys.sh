#!/usr/bin/env bash
# Output for programs: each command with --json prints one object on standard output and nothing
# else, with the documented keys. (test_ternctl.sh has those of ternctl.) And output for people: the
# progress bar, on a terminal alone.
. "$(dirname "$0")/replay_lib.sh"
needs python3 "to check the JSON"

# keys "NAME ..." EXPRESSION COMMAND...: its object j has these keys, the Python expression holds
keys() {
    local names=$1 also=$2 rc=0
    shift 2
    "$@" >"$DIR/json" 2>"$DIR/err" || rc=$?
    # tern-bench ends with 1 if a figure exceeds its limit: not judged here.
    [ "$rc" -eq 0 ] || [ "$rc-${1##*/}" = 1-tern-bench ] || fail "exit status $rc: $*"
    python3 - "$DIR/json" "$names" "$also" <<'PY' || fail "$*"
import json, sys
j = json.load(open(sys.argv[1]))
assert isinstance(j, dict), "no object"
missing = [k for k in sys.argv[2].split() if k not in j]
assert not missing, f"not there: {missing}"
assert eval(f"({sys.argv[3]})"), sys.argv[3]
PY
    echo "${1##*/} ${2:-}: ok"
}

keys "requests prompt_tokens matched_tokens prompt_pages decode_hit_pages transferred_pages transferred_bytes socket_bytes
    verified_pages wrong_bytes corrupt_detected failed_requests leaked_pages state_pages_peak history_pages_peak
    match_us_p50 match_us_p99 transfer_gb_s elapsed_s lost_resumable_tokens retracts bytes_moved bytes_needed tickets
    lost_tickets" \
    "j['prompt_pages'] == j['decode_hit_pages'] + j['transferred_pages'] and j['bytes_moved'] == j['bytes_needed'] and
    j['tickets'] == 0" \
    "$TERN_BIN/tern-replay" --spawn --sessions 2 --turns 2 --json
keys "tickets lost_tickets tickets_taken tickets_dropped tickets_expired handed_again troubles verified_tail_pages" \
    "j['tickets'] == 4 == j['tickets_taken'] and j['lost_tickets'] == 0" \
    "$TERN_BIN/tern-replay" --spawn --tickets --sessions 2 --turns 2 --json
keys "histories events states violations failing_seeds histories_per_s faults marks marks_missed" \
    "j['histories'] == 20 and j['faults'] and j['marks']" "$TERN_BIN/tern-sim" --seeds 20 --json
keys "match_warm_us memcmp_warm_us match_cold_us memcmp_cold_us insert_us pin_shallow_ns pin_deep_ns evicted_nodes evict_step_ms_max" True \
    "$TERN_BIN/tern-bench" index --quick --json
keys "match_rtt_us_p50 match_rtt_us_p99 raw_rtt_us_p50 match_rtt_us_p50_2core match_rtt_us_p99_2core
    raw_rtt_us_p50_2core step_us_p50 step_room_us_p50 step_exhausted_us_p50 step_exhausted_ratio pipelined_per_s
    raw_pipelined_per_s busy_match_rtt_us_p99 busy_raw_rtt_us_p99 busy_ratio busy_fetch_gb_s
    decode_step_us_p50 decode_step_us_p99 block_pool_step_us_p99 raw_send_us_p50 raw_send_us_p99
    decode_told_us_p50 decode_told_us_p99 decode_slept_step_us_p50 decode_slept_step_us_p99 decode_round_trips_per_step" \
    "j['busy_fetch_gb_s'] > 0 and j['decode_step_us_p99'] > 0 and j['decode_round_trips_per_step'] <= 0.1" \
    "$TERN_BIN/tern-bench" rpc --quick --json
# Y4
keys "exposed_us whole_us exposed_ratio chunk_us pace prompt_tokens wrong_bytes" \
    "j['wrong_bytes'] == 0 and j['whole_us'] > 0 < j['exposed_us'] and j['pace'] == 1.5" \
    "$TERN_BIN/tern-replay" --follow --quick --pace 1.5 --json
# M-e
keys "clients body_bytes ping_ms_p50 ping_ms_p95 ping_ms_p99 status_ms_p95 bodies_per_s owner_ping_ms_p50 owner_ping_ms_p95
    owner_ping_ms_p99 owner_status_ms_p95 owner_bodies_per_s idle_ping_ms_p95 p95_ratio bodies_ratio" "j['bodies_per_s'] > 0" \
    "$TERN_BIN/tern-bench" health --quick --json
keys "publish_wait_us_p50 publish_wait_us_p99 raw_rtt_us_p50 raw_rtt_us_p99 done_step_ns" True \
    "$TERN_BIN/tern-bench" publish --quick --json
# M-d
keys "kept_bytes kept_bytes_off_x16 append_us_first append_us_last peak_bytes prepare_us_first prepare_us_last" \
    "j['kept_bytes'] <= 6.4e9 < j['peak_bytes'] and 12 < j['kept_bytes_off_x16'] / j['kept_bytes'] < 13" \
    "$TERN_BIN/tern-bench" retention --quick --json
keys "write_ratio read_ratio write_gb_s raw_write_gb_s raw_write_depth read_gb_s raw_read_gb_s raw_read_depth direct" \
    "j['wrong'] == 0 and j['write_ratio'] > 0 and j['read_ratio'] > 0" "$TERN_BIN/tern-bench" spill --quick --json --dir "$DIR"
keys "cores find rows wrong" "j['wrong'] == 0 and [r['keys'] for r in j['find']] == [1, 32, 4096] and
    {r['value_bytes'] for r in j['rows']} == {4096, 65536, 262144, 1048576, 4194304} and all(r['put_gb_s'] > 0 and
    r['get_gb_s'] > 0 and all(k in r for k in ('loop_gb_s', 'memcpy_gb_s', 'put_ratio', 'get_ratio')) for r in j['rows'])" \
    "$TERN_BIN/tern-bench" blocks --quick --json
keys "rows peers" "([r['page_bytes'] for r in j['rows']] == [16384, 65536, 262144, 1048576] and all(k in r for r in j['rows']
    for k in ('gb_s', 'raw_gb_s', 'ratio', 'sent_ratio')) and [r['peers'] for r in j['peers']] == [2, 4]
    and all(r['gb_s'] > 0 and r['one_gb_s'] > 0 for r in j['peers']))" "$TERN_BIN/tern-bench" transfer --quick --json
keys "rows wrong" "j['wrong'] == 0 and [r['piece_bytes'] for r in j['rows']] == [64, 256, 1024, 4096, 16384, 65536] and all(k in r
    for r in j['rows'] for k in ('raw_gb_s', 'sent_gb_s', 'sent_packed_gb_s', 'sent_ratio', 'sent_core_ratio', 'received_gb_s',
    'received_packed_gb_s', 'received_ratio', 'received_core_ratio'))" "$TERN_BIN/tern-bench" reshard --quick --json
# A is refused a record of a table; what costs steps or shares sockets need not be.
costs="('long commits', 'publishing', 'evictions', 'disk entries', 'tickets', 'collisions', 'pool opens', 'bell', 'holes', 'descriptors', 'unread answers', 'peer layouts', 'steps', 'finds')"
keys "rows unmeasured" "j['unmeasured'] == [] and all((r['a_refused'] > 0 or r['table'] in $costs) and r['b_failed'] == 0 and all(k in r for k in ('table', 'p99_ratio')) for r in j['rows'])" \
    "$TERN_BIN/tern-bench" neighbours --quick --json

"$TERN_BIN/tern-replay" --spawn --sessions 20 --turns 20 --json >"$DIR/json" 2>"$DIR/err" || fail "exit status $?"
! grep -q 'left' "$DIR/err" || fail "a bar where there is no terminal"
if command -v script >/dev/null; then
    script -qec "$TERN_BIN/tern-replay --spawn --sessions 60 --turns 30 --json >$DIR/json" /dev/null </dev/null |
        tr '\r' '\n' >"$DIR/bar" || fail "tern-replay on a terminal"
    is requests 1800
    grep -qE '\[[#.]+\] [0-9]+/1800 requests  [0-9]+/s  [0-9]+:[0-5][0-9] left' "$DIR/bar" ||
        fail "no bar with rate and time left on a terminal: $(cat "$DIR/bar")"
else
    echo "not done: the progress bar needs script (bsdutils)"
fi
echo "all passed"

#!/usr/bin/env bash
# ternctl watch against a real daemon: beginning, changes, resuming from a number, losses, end.
source "$(dirname "$0")/with_ternd.sh"

needs python3 "to check the JSON"
ternd_start "limits:
  events: 32" 16M 1

put() { # CHUNKS SEED: commits that many chunks of 64 tokens
    "$TERN_BUILD/tests/holder" put "$SOCKET" "$@" || fail "put"
}

# lines FILE EXPRESSION: one JSON object a line; the expression holds for `v`, the list of them
lines() {
    python3 -c '
import json, sys
v = [json.loads(line) for line in open(sys.argv[1])]
assert eval(sys.argv[2]), (sys.argv[2], v)
' "$1" "$2" || fail "$1: $2"
}

# ---- live
timeout 120 "$CTL" watch --json --changes 6 >"$DIR/live" &
WATCH=$!
wait_for "watch" test -s "$DIR/live"
put 3 1
gone() { # nodes whose checksums are being computed cannot be evicted yet
    "$CTL" evict >/dev/null
    [[ $(wc -l <"$DIR/live") -ge 7 ]]
}
wait_for "the removals" gone
wait $WATCH || fail "watch ended with $?"
lines "$DIR/live" "v[0]['event'] == 'begin' and v[0]['next'] > 1 and len(v[0]['incarnation']) == 16"
lines "$DIR/live" "[e['event'] for e in v[1:]] == ['stored'] * 3 + ['removed'] * 3"
lines "$DIR/live" "[e['number'] - v[0]['next'] for e in v[1:]] == [0, 1, 2, 3, 4, 5]"
BASE=$(python3 -c 'import json, sys; print(json.loads(open(sys.argv[1]).readline())["next"] - 1)' "$DIR/live")
lines "$DIR/live" "[e['depth'] for e in v[1:]] == [64, 128, 192, 192, 128, 64]"
lines "$DIR/live" "all(e['tenant'] == 't0' and e['device'] == (e['event'] == 'stored') and not e['host'] for e in v[1:])"
lines "$DIR/live" "v[1]['parent_chain'] == '0' * 16 and v[2]['parent_chain'] == v[1]['chain'] == v[6]['chain']"

# ---- from a number; chains are those of `ternctl tree`
put 2 2
timeout 120 "$CTL" watch --from $((BASE + 6)) --changes 3 --json >"$DIR/again" || fail "watch --from"
lines "$DIR/again" "[e['number'] - $BASE for e in v[1:]] == [6, 7, 8] and v[0]['next'] - $BASE == 6"
"$CTL" tree --json >"$DIR/tree"
python3 -c '
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])][-2:]
tree = {n["chain"]: n for n in json.load(open(sys.argv[2]))["tree"] if n["depth"] > 0}
assert set(tree) == {e["chain"] for e in events}, (events, tree)
assert all(tree[e["chain"]]["namespace"] == e["namespace"] for e in events)
' "$DIR/again" "$DIR/tree" || fail "watch and tree name prefixes differently"

# ---- more changes than are kept
for i in 3 4 5; do put 16 $i; done
timeout 120 "$CTL" watch --from 1 --changes 32 --json >"$DIR/late" || fail "watch --from 1"
lines "$DIR/late" "v[1] == {'event': 'lost', 'changes': 24} and v[2]['number'] - $BASE == 25 and v[-1]['number'] - $BASE == 56"
T=$(timeout 120 "$CTL" watch --from 1 --changes 4 2>"$DIR/stderr") || fail "watch as a table"
grep -q "24 changes were overwritten" <<<"$T" || fail "the table does not say what was lost: $T"
grep -Eq "^ *$((BASE + 25))  stored +device +t0" <<<"$T" || fail "the table: $T"
[[ $(wc -l <<<"$T") == 6 ]] || fail "a title, what was lost, four changes: $T"

S=$("$CTL" status --json)
json "$S" "[j['events'][k] for k in ('next', 'first', 'lost')] == [$BASE + 57, $BASE + 25, 48]"
json "$S" "j['events']['told'] >= 41 and j['events']['subscriptions'] <= 1"

# ---- errors and the end
ends 1 "no change since the daemon's start has that number" "$CTL" watch --from 1000
ends 1 "no change since the daemon's start has that number" "$CTL" watch --from $((BASE + 58))
ends 2 "" "$CTL" watch --from x
timeout 120 "$CTL" watch --json >"$DIR/last" 2>"$DIR/stderr" &
WATCH=$!
wait_for "watch" test -s "$DIR/last"
ternd_stop
rc=0
wait $WATCH || rc=$?
[[ $rc == 3 ]] || fail "the daemon's end: $rc $(cat "$DIR/stderr")"
echo "ternctl watch: live, from a number, lost, ended"

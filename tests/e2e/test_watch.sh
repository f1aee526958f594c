#!/usr/bin/env bash
# ternctl watch against a real daemon: begin, changes, a number to go on from, what was lost, the end.
source "$(dirname "$0")/with_ternd.sh"

CTL=$TERN_BIN/ternctl
command -v python3 >/dev/null || {
    echo "skipped: python3 is needed to check the JSON"
    exit 77
}
ternd_start "limits:
  events: 32" 16M 1

# Commits CHUNKS chunks of 64 tokens of the sequence SEED.
cat >"$DIR/put.c" <<'C'
#include <stdlib.h>
#include <tern.h>
#define L 64
int main(int argc, char **argv)
{
    struct tern_group kv = {.name = "kv", .page_tokens = L, .page_bytes = 4096};
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = 4u << 20};
    struct tern_namespace ns = {.model = "m"};
    static uint32_t tokens[64 * L];
    struct tern_tokens list = {.v = tokens};
    struct tern_result r[3];
    struct tern *t;
    tern_session s;
    uint64_t pool;
    uint32_t n = argc < 4 ? 0 : L * (uint32_t)atoi(argv[2]), done;
    if (n == 0 || tern_connect(argv[1], 0, &t) || tern_join(t, "put", TERN_BOTH, 0, 1, 0) ||
        tern_pool_open(t, &layout, 0, &pool, 0) || tern_session_open(t, pool, &ns, 0, &s))
        return 1;
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (uint32_t)atoi(argv[3]) * 65536 + i;
    list.n = n;
    struct tern_op ops[] = {{.kind = TERN_EXTEND, .session = s, .length = n, .written = n},
                            {.kind = TERN_COMMIT, .session = s, .length = n},
                            {.kind = TERN_CLOSE, .session = s}};
    if (tern_match(t, s, &list, 0, 0, r) || tern_step(t, ops, 3, 0, r, &done) || r[1].err || r[2].err)
        return 2;
    tern_destroy(t);
    return 0;
}
C
$CC "${USER_FLAGS[@]}" -I"$TERN_SOURCE/client/include" -I"$TERN_SOURCE/daemon/base" "$DIR/put.c" \
    -L"$TERN_BUILD/client" -Wl,-rpath,"$TERN_BUILD/client" -ltern -o "$DIR/put" || fail "put.c"

# lines FILE EXPRESSION: the file is one JSON object a line, `v` all of them, and the expression holds
lines() {
    python3 -c '
import json, sys
v = [json.loads(line) for line in open(sys.argv[1])]
assert eval(sys.argv[2]), (sys.argv[2], v)
' "$1" "$2" || fail "$1: $2"
}

# ---- as it happens
timeout 120 "$CTL" watch --json --changes 6 >"$DIR/live" &
WATCH=$!
for _ in $(seq 1200); do
    [[ -s $DIR/live ]] && break
    sleep 0.05
done
"$DIR/put" "$SOCKET" 3 1 || fail "put"
# Nodes whose checksums are being computed cannot go yet.
for _ in $(seq 1200); do
    "$CTL" evict >/dev/null
    [[ $(wc -l <"$DIR/live") -ge 7 ]] && break
    sleep 0.05
done
wait $WATCH || fail "watch ended with $?"
lines "$DIR/live" "v[0]['event'] == 'begin' and v[0]['next'] == 1 and len(v[0]['incarnation']) == 16"
lines "$DIR/live" "[e['event'] for e in v[1:]] == ['stored'] * 3 + ['removed'] * 3"
lines "$DIR/live" "[e['number'] for e in v[1:]] == [1, 2, 3, 4, 5, 6]"
lines "$DIR/live" "[e['depth'] for e in v[1:]] == [64, 128, 192, 192, 128, 64]"
lines "$DIR/live" "all(e['tenant'] == 't0' and e['device'] == (e['event'] == 'stored') and not e['host'] for e in v[1:])"
lines "$DIR/live" "v[1]['parent_chain'] == '0' * 16 and v[2]['parent_chain'] == v[1]['chain'] == v[6]['chain']"

# ---- from a number; chains are those of `ternctl tree`
"$DIR/put" "$SOCKET" 2 2 || fail "put"
timeout 120 "$CTL" watch --from 6 --changes 3 --json >"$DIR/again" || fail "watch --from"
lines "$DIR/again" "[e['number'] for e in v[1:]] == [6, 7, 8] and v[0]['next'] == 6"
"$CTL" tree --json >"$DIR/tree"
python3 -c '
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])][-2:]
tree = {n["chain"]: n for n in json.load(open(sys.argv[2]))["tree"] if n["depth"] > 0}
assert set(tree) == {e["chain"] for e in events}, (events, tree)
assert all(tree[e["chain"]]["namespace"] == e["namespace"] for e in events)
' "$DIR/again" "$DIR/tree" || fail "watch and tree name prefixes differently"

# ---- more than is kept
for i in 3 4 5; do "$DIR/put" "$SOCKET" 16 $i || fail "put"; done
timeout 120 "$CTL" watch --from 1 --changes 32 --json >"$DIR/late" || fail "watch --from 1"
lines "$DIR/late" "v[1] == {'event': 'lost', 'changes': 24} and v[2]['number'] == 25 and v[-1]['number'] == 56"
T=$(timeout 120 "$CTL" watch --from 1 --changes 4 2>"$DIR/stderr") || fail "watch as a table"
grep -q "24 changes were overwritten" <<<"$T" || fail "the table does not say what was lost: $T"
grep -Eq "^ +25  stored +device +t0" <<<"$T" || fail "the table: $T"
[[ $(wc -l <<<"$T") == 6 ]] || fail "a title, what was lost, four changes: $T"

S=$("$CTL" status --json)
python3 -c '
import json, sys
e = json.loads(sys.argv[1])["events"]
assert e["next"] == 57 and e["first"] == 25 and e["lost"] == 48 and e["told"] >= 41 and e["subscriptions"] <= 1, e
' "$S" || fail "status: $S"

# ---- wrong and over
rc=0
"$CTL" watch --from 1000 >/dev/null 2>"$DIR/stderr" || rc=$?
[[ $rc == 1 ]] && grep -q "no change has that number yet" "$DIR/stderr" || fail "from the future: $rc $(cat "$DIR/stderr")"
rc=0
"$CTL" watch --from x >/dev/null 2>&1 || rc=$?
[[ $rc == 2 ]] || fail "a number that is none: $rc"
timeout 120 "$CTL" watch --json >"$DIR/last" 2>"$DIR/stderr" &
WATCH=$!
for _ in $(seq 1200); do
    [[ -s $DIR/last ]] && break
    sleep 0.05
done
ternd_stop
rc=0
wait $WATCH || rc=$?
[[ $rc == 3 ]] || fail "the daemon's end: $rc $(cat "$DIR/stderr")"
echo "ternctl watch: live, from a number, lost, ended"

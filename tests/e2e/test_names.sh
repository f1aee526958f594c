#!/usr/bin/env bash
# Peers by name: a name that is not known yet, one that is another machine's by now, a name service that is silent
# and one that never answers. Real daemons; the name service is interpose_names.c, but for localhost.
source "$(dirname "$0")/with_ternd.sh"
CTL=$TERN_BIN/ternctl

NAMES=$DIR/names
mkdir "$NAMES"
"${CC:-cc}" -std=gnu17 -O1 -shared -fPIC -o "$DIR/names.so" "$HERE/interpose_names.c" -ldl
PRELOAD=$(ldd "$TERN_BIN/ternd" | sed -n 's/.*=> \(.*lib[at]san[^ ]*\) .*/\1 /p')$DIR/names.so # a sanitizer comes first

# name NAME TEXT: what the name service says of it, at once or not at all
name() {
    echo "$2" >"$NAMES/new" && mv "$NAMES/new" "$NAMES/$1"
}

B_PID=
b_stop() {
    [[ -n $B_PID ]] || return 0
    kill -9 "$B_PID" 2>/dev/null || true
    wait "$B_PID" 2>/dev/null || true
    B_PID=
}
trap 'b_stop; cleanup' EXIT

# b_start ADDRESS PORT: the peer, listening there
b_start() {
    : >"$DIR/b.log"
    cat >"$DIR/b.yaml" <<EOF
node: b
listen: $1:$2
workers: 1
huge_pages: false
insecure_peers: true
admin: {socket: $DIR/b.admin.sock}
tenants:
  - {name: t0, socket: $DIR/b.t0.sock, memory: 4M}
peers:
  - {name: e2e, address: "127.0.0.1:1", tenants: [t0]}
EOF
    "$TERN_BIN/ternd" --config "$DIR/b.yaml" 2>"$DIR/b.log" &
    B_PID=$!
    for _ in $(seq 300); do
        grep -qs event=ready "$DIR/b.log" && break
        sleep 0.1
    done
    grep -q event=ready "$DIR/b.log" || fail "the peer did not start: $(cat "$DIR/b.log")"
    PORT=$(grep -o 'control_port=[0-9]*' "$DIR/b.log" | cut -d= -f2)
}

# peer NAME EXPRESSION: over the row p of that peer, within 30 s
peer() {
    local rows
    for _ in $(seq 600); do
        rows=$("$CTL" peers --json)
        python3 -c 'import json, sys
p = [r for r in json.load(sys.stdin)["peers"] if r["peer"] == sys.argv[1]][0]
sys.exit(0 if eval(sys.argv[2]) else 1)' "$1" "$2" <<<"$rows" && return 0
        sleep 0.05
    done
    fail "peer $1: not $2 in $rows"
}

# a_start: the daemon whose peers have names
a_start() {
    local extra="insecure_peers: true
peers:"
    while [[ $# -gt 0 ]]; do
        extra+="
  - {name: $1, address: \"$2\", tenants: [t0]}"
        shift 2
    done
    ternd_start "$extra" 4M 1
}

# ---- the system's own: localhost, which may be ::1 as well, where nobody listens
b_start 127.0.0.1 0
a_start b "localhost:$PORT" gone localhost:1
peer b "p['state'] == 'up'"
peer gone "'Connection refused' in p['last_error'] and p['attempts'] >= 3"
ternd_stop

# ---- names that are not known yet: it starts, says so, and asks again; the others do not wait
export INTERPOSE_NAMES=$NAMES
name silent.test again
name hung.test hang
LD_PRELOAD=$PRELOAD "$TERN_BIN/ternd" --config "$DIR/config.yaml" --check-config --peer \
    "name=c,address=moving.test:1,tenants=t0" >"$DIR/out" 2>"$DIR/err" || fail "refused: $(cat "$DIR/err")"
grep -q "warning: peer c: moving.test: Name or service not known" "$DIR/err" || fail "no warning: $(cat "$DIR/err")"

export LD_PRELOAD=$PRELOAD
a_start b "moving.test:$PORT" silent silent.test:1 hung hung.test:1 number 127.0.0.1:1
unset LD_PRELOAD
peer number "'Connection refused' in p['last_error'] and p['attempts'] >= 3"
peer b "p['last_error'] == 'the name does not resolve: Name or service not known' and p['attempts'] >= 3"
peer silent "'Temporary failure in name resolution' in p['last_error'] and p['attempts'] >= 3"
peer hung "p['state'] == 'resolving' or p['last_error']"
[[ $(grep -c "level=warn event=resolve_failed peer=b host=moving.test err=INVALID" "$DIR/log") == 1 ]] || fail "not told once"
[[ $(grep -c "level=warn event=resolve_failed peer=silent host=silent.test err=TIMED_OUT" "$DIR/log") == 1 ]] || fail "not told once"
grep -q "the name does not resolve: Name or service not known" <<<"$("$CTL" peers)" || fail "peers does not say why"
name moving.test 127.0.0.1
peer b "p['state'] == 'up' and p['last_error'] is None"

# ---- the peer gets another address
b_stop
name moving.test 127.0.0.2
b_start 127.0.0.2 "$PORT"
peer b "p['state'] == 'up'"

# ---- it goes and comes while the name service is silent: found where it was
name moving.test again
b_stop
peer b "p['last_error'] == 'Connection refused; the name does not resolve: Temporary failure in name resolution'"
b_start 127.0.0.2 "$PORT"
peer b "p['state'] == 'up'"

# ---- a lookup that never comes back is given up, and keeps nobody waiting; not even the end
peer hung "p['last_error'] == 'the name does not resolve: no answer from the name service'"
name hung.test 127.0.0.1
peer hung "'Connection refused' in p['last_error']"
name hung.test hang
peer hung "p['state'] == 'resolving'"
kill "$TERND_PID"
for _ in $(seq 100); do # drain_ms is 1000
    kill -0 "$TERND_PID" 2>/dev/null || break
    sleep 0.05
done
kill -0 "$TERND_PID" 2>/dev/null && fail "it waits for a name at the end"
wait "$TERND_PID" || fail "exit status $?"
TERND_PID=
echo "names: ok"

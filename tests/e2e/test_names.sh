#!/usr/bin/env bash
# Peers by name: an unknown name, one that now belongs to another machine, a silent name service and
# one that never answers. Real daemons; the name service is interpose_names.c, except for localhost.
source "$(dirname "$0")/with_ternd.sh"

NAMES=$DIR/names
mkdir "$NAMES"
"$CC" -std=gnu17 -O1 -shared -fPIC -o "$DIR/names.so" "$HERE/interpose_names.c" -ldl

# name NAME TEXT: what the name service answers for it, at once or not at all
name() {
    echo "$2" >"$NAMES/new" && mv "$NAMES/new" "$NAMES/$1"
}

declare -A PORTS # of the peers' daemons, by node
peer_stop() {
    kill -9 "${PIDS[$1]}"
    wait "${PIDS[$1]}" 2>/dev/null || true
    unset "PIDS[$1]"
}

# peer_start NODE ADDRESS PORT: a daemon that listens there
peer_start() {
    ternd_run "$1" --listen "$2:$3" --insecure_peers --tenant "name=t0,socket=$DIR/$1/t0.sock,memory=4M" \
        --peer "name=e2e,address=127.0.0.1:1,tenants=t0"
    PORTS[$1]=$(sed -n 's/.*event=ready .*control_port=\([0-9]*\).*/\1/p' "$DIR/$1/log")
}

# peer NAME EXPRESSION: over the row p of that peer, which is waited for
peer_is() {
    ROWS=$("$CTL" peers --json)
    python3 -c 'import json, sys
p = [r for r in json.load(sys.stdin)["peers"] if r["peer"] == sys.argv[1]][0]
sys.exit(0 if eval(sys.argv[2]) else 1)' "$1" "$2" <<<"$ROWS"
}
peer() {
    wait_for "peer $1: $2" peer_is "$1" "$2"
}

# a_start: the daemon with peers by name
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

for node in late moves back; do
    peer_start $node 127.0.0.1 0
done

# The system's own name service, if it knows localhost; that may also be ::1, where nothing listens.
SYSTEM=()
if [[ $(getent ahosts localhost) == *127.0.0.1* ]]; then
    peer_start local 127.0.0.1 0
    SYSTEM=(local "localhost:${PORTS[local]}" gone localhost:1)
else
    echo "localhost: not looked at, this machine does not know it"
fi

# ---- unknown names: the daemon starts, reports them, and asks again; the other peers do not wait
export INTERPOSE_NAMES=$NAMES
TERND_PRELOAD=$(ternd_preload "$DIR/names.so")
name silent.test again
name hung.test hang
name stuck.test hang
name moves.test 127.0.0.1
name back.test 127.0.0.1
LD_PRELOAD=$TERND_PRELOAD "$TERN_BIN/ternd" --check-config --admin.socket "$DIR/c.admin.sock" --huge_pages=no \
    --insecure_peers=yes --tenant "name=t0,socket=$DIR/c.sock,memory=4M" \
    --peer "name=c,address=late.test:1,tenants=t0" >"$DIR/out" 2>"$DIR/err" || fail "refused: $(cat "$DIR/err")"
grep -q "warning: peer c: late.test: Name or service not known" "$DIR/err" || fail "no warning: $(cat "$DIR/err")"

a_start late "late.test:${PORTS[late]}" silent silent.test:1 hung hung.test:1 stuck stuck.test:1 number 127.0.0.1:1 \
    moves "moves.test:${PORTS[moves]}" back "back.test:${PORTS[back]}" "${SYSTEM[@]}"
peer moves "p['state'] == 'up'"
peer back "p['state'] == 'up'"
peer number "'Connection refused' in p['last_error'] and p['attempts'] >= 3"
peer late "p['last_error'] == 'the name does not resolve: Name or service not known' and p['attempts'] >= 3"
peer silent "'Temporary failure in name resolution' in p['last_error'] and p['attempts'] >= 3"
if [[ ${#SYSTEM[@]} -gt 0 ]]; then
    peer local "p['state'] == 'up'"
    peer gone "'Connection refused' in p['last_error'] and p['attempts'] >= 3"
fi
peer hung "p['state'] == 'resolving' or p['last_error']"
[[ $(grep -c "level=warn event=resolve_failed peer=late host=late.test err=INVALID" "$DIR/log") == 1 ]] || fail "not told once"
[[ $(grep -c "level=warn event=resolve_failed peer=silent host=silent.test err=TIMED_OUT" "$DIR/log") == 1 ]] || fail "not told once"
ends 0 "the name does not resolve: Name or service not known" "$CTL" peers --wide
name late.test 127.0.0.1
peer late "p['state'] == 'up' and p['last_error'] is None"

# ---- a peer gets another address
peer_stop moves
peer moves "p['state'] != 'up'"
name moves.test 127.0.0.2
peer_start moves 127.0.0.2 "${PORTS[moves]}"
peer moves "p['state'] == 'up'"

# ---- a peer goes down and up while the name service is silent: it is found at its old address
name back.test again
peer_stop back
peer back "p['last_error'] == 'Connection refused; the name does not resolve: Temporary failure in name resolution'"
peer_start back 127.0.0.1 "${PORTS[back]}"
peer back "p['state'] == 'up'"

# ---- a lookup that never returns is given up, and delays nobody, not even the daemon's end
peer hung "p['last_error'] == 'the name does not resolve: no answer from the name service'"
name hung.test 127.0.0.1
peer hung "'Connection refused' in p['last_error']"
kill "$TERND_PID" # stuck.test is still being looked up
ended() {
    ! kill -0 "$TERND_PID" 2>/dev/null
}
wait_for "its end: it waits for a name" ended # drain_ms is 1000
wait "$TERND_PID" || fail "exit status $?"
TERND_PID=
echo "names: ok"

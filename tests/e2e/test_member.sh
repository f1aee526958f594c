#!/usr/bin/env bash
# Membership by etcd: three daemons, each with a tern-member, and a real etcd, each in a network namespace of its own
# if this user may make them, else at ports of the loopback. A fourth daemon joins, one leaves, etcd stops for longer
# than leases and grace times (60 s with TERN_FULL=1) and starts again, a node is killed. Replays between two others
# run meanwhile without a failure, no daemon is restarted, and peers that an operator added stay. A node that only
# etcd names, and keys that are no nodes, change nothing.
source "$(dirname "$0")/with_ternd.sh"
MEMBER=$TERN_BIN/tern-member
[[ -x $MEMBER ]] || skip "there is no tern-member in this build: libcurl was not found"
! grep -q libcurl <<<"$LIBRARIES" || fail "ternd speaks HTTP"
needs python3 "to read JSON"
needs curl "to look into etcd"
command -v etcd >/dev/null || skip "etcd is needed (package etcd-server)"
# The two nodes that exchange pages have leases that outlive the pauses of a busy machine; tests that wait for the end of a
# lease use a short one.
LEASE=3 LONG_LEASE=30 GRACE=1
AWAY=$((LEASE + GRACE + 1))
[[ -z ${TERN_FULL:-} ]] || AWAY=60
declare -A HOST PORT LIFE NET

# ---- networks: NET[NODE] is the process whose namespace is that node's
net_hold() { # NODE
    unshare --net sleep infinity &
    NET[$1]=$! PIDS[net_$1]=$!
}
via() { # NODE: sets VIA, the prefix of a command there. A process in the background must be the command itself
    VIA=()
    [[ -z ${NET[$1]:-} ]] || VIA=(nsenter --net="/proc/${NET[$1]}/ns/net")
}
at() { # NODE COMMAND...
    via "$1"
    "${VIA[@]}" "${@:2}"
}
net_own() { [[ $(readlink "/proc/${NET[$1]}/ns/net") != $(readlink /proc/self/ns/net) ]]; }
net_make() { # NODE...
    local node i=1
    net_hold switch
    wait_for "a namespace" net_own switch
    at switch ip link add switch type bridge && at switch ip link set switch up || return
    for node; do
        net_hold "$node"
        wait_for "a namespace" net_own "$node"
        at switch ip link add "port$i" type veth peer name eth0 netns "${NET[$node]}" &&
            at switch ip link set "port$i" master switch up && at "$node" ip addr add "10.77.0.$i/24" dev eth0 &&
            at "$node" ip link set eth0 up && at "$node" ip link set lo up || return
        HOST[$node]=10.77.0.$i
        i=$((i + 1))
    done
}
NODES=(n1 n2 n3 n4)
if command -v ip >/dev/null && unshare --net true 2>/dev/null && net_make etcd "${NODES[@]}" 2>"$DIR/net.out"; then
    echo "each node has a network of its own"
else
    echo "not done: network namespaces need root and iproute2; all nodes are at the loopback: $(tail -n 1 "$DIR/net.out" 2>/dev/null)"
    NET=()
    for node in etcd "${NODES[@]}"; do HOST[$node]=127.0.0.1; done
fi
free_ports PORT[etcd] PORT[raft] PORT[n1] PORT[n2] PORT[n3] PORT[n4]

# ---- etcd, daemons and their tern-members
URL=http://${HOST[etcd]}:${PORT[etcd]} RAFT=http://127.0.0.1:${PORT[raft]}
etcd_ok() { at etcd curl -sf -m 5 "$URL/health" 2>/dev/null | grep -q true; }
end_hard() { # the process in PIDS by that name
    kill -9 "${PIDS[$1]}"
    wait "${PIDS[$1]}" 2>/dev/null || true
}
etcd_start() {
    via etcd
    "${VIA[@]}" etcd --name e --data-dir "$DIR/etcd" --listen-client-urls "$URL" --advertise-client-urls "$URL" \
        --listen-peer-urls "$RAFT" --initial-advertise-peer-urls "$RAFT" --initial-cluster "e=$RAFT" >>"$DIR/etcd.out" 2>&1 &
    PIDS[etcd]=$!
    wait_for "etcd" etcd_ok
}
member_start() { # NODE: one of its endpoints is dead
    local ttl=$LEASE
    [[ $1 != n[12] ]] || ttl=$LONG_LEASE
    via "$1"
    "${VIA[@]}" "$MEMBER" --node "$1" --address "${HOST[$1]}:${PORT[$1]}" --socket "$DIR/$1/admin.sock" --endpoint "http://${HOST[$1]}:1" \
        --endpoint "$URL" --prefix /tern/test --allow 'n*=default' --ttl $ttl --grace $GRACE --interval-ms 200 2>>"$DIR/$1/member.out" &
    PIDS[member_$1]=$!
}
node_start() { # NODE
    mkdir -p "$DIR/$1"
    : >"$DIR/$1/log"
    via "$1"
    "${VIA[@]}" "$TERN_BIN/ternd" --node "$1" --admin.socket "$DIR/$1/admin.sock" --huge_pages=no --workers 1 --page_bytes_min 512 \
        --tenant "name=default,socket=$DIR/$1/default.sock,memory=16M,host_memory=16M" --listen "${HOST[$1]}:${PORT[$1]}" \
        --insecure_peers --deadlines.drain_ms 1000 2>"$DIR/$1/log" &
    PIDS[$1]=$!
    ready "${PIDS[$1]}" "$DIR/$1/log"
    member_start "$1"
    LIFE[$1]=$(ctl "$1" status | value 'j["incarnation"]')
}
ctl() { # NODE COMMAND...
    "$CTL" --socket "$DIR/$1/admin.sock" "${@:2}" --json
}
peers() { # NODE: its peers, those without a link with a '-' in front
    ctl "$1" peers | value '" ".join(("" if p["state"] == "up" else "-") + p["peer"] for p in sorted(j["peers"], key=lambda p: p["peer"]))'
}
names() { # NODE: the names, whatever the state of their links
    peers "$1" | tr -d -
}
has() { [[ $(peers "$1") == "$2" ]]; } # NODE PEERS
says() { # NODE EXPRESSION: of its key in etcd; EXPRESSION of n, None without a key
    local answer
    answer=$(at etcd curl -sf -m 5 "$URL/v3/kv/range" -d "{\"key\":\"$(printf '/tern/test/nodes/%s' "$1" | base64)\"}") || return
    python3 -c '
import base64, json, sys
kvs = json.loads(sys.argv[1]).get("kvs")
n = json.loads(base64.b64decode(kvs[0]["value"])) if kvs else None
sys.exit(not eval(sys.argv[2]))' "$answer" "$2"
}
put() { # NAME VALUE
    at etcd curl -sf -m 5 "$URL/v3/kv/put" -d "{\"key\":\"$(printf '/tern/test/nodes/%s' "$1" | base64)\",\"value\":\"$(printf %s "$2" | base64 -w 0)\"}" >"$DIR/out"
}
logged() { grep -c "event=$2 " "$DIR/$1/member.out" || true; } # NODE EVENT: how often

etcd_start
put nothing 'no JSON'
put other '{"name":"other","address":"10.77.0.99:7000","incarnation":"0000000000000001","healthy":true}' # --allow names no such node
put n9 '{"name":"other","address":"10.77.0.99:7000","incarnation":"0000000000000001","healthy":true}'    # somebody else's key
for node in n1 n2 n3; do node_start $node; done
ctl n1 peer add n0 "${HOST[n1]}:1" --tenants default >"$DIR/out" || fail "peer add: $(cat "$DIR/out")"
wait_for "three nodes" has n1 "-n0 n2 n3"
wait_for "three nodes" has n2 "n1 n3"
wait_for "three nodes" has n3 "n1 n2"
[[ $(ctl n1 peers | value 'sorted((p["peer"], p["origin"]) for p in j["peers"])') == "[('n0', 'operator'), ('n2', 'membership'), ('n3', 'membership')]" ]] ||
    fail "origins: $(ctl n1 peers)"
says n1 "n['healthy'] and n['incarnation'] == '${LIFE[n1]}' and n['address'] == '${HOST[n1]}:${PORT[n1]}' and n['capacity']['memory_bytes'] == 1 << 24" ||
    fail "the key of n1: $(cat "$DIR/n1/member.out")"

# ---- replays, one after the other, until $DIR/enough exists
replays() {
    for ((i = 1; ; i++)); do
        "$TERN_BIN/tern-replay" --prefill "$DIR/n1/default.sock" --decode "$DIR/n2/default.sock" --peer n1 --profile tiny --page-bytes 512 \
            --sessions 20 --turns 6 --concurrency 2 --pool-pages 2000 --host-pages 2000 --seed $i --json >"$DIR/json" 2>"$DIR/err" || return
        value '"replay", j["failed_requests"], j["wrong_bytes"], j["retries"], j["transferred_pages"]' <"$DIR/json" >>"$DIR/replays"
        [[ ! -e $DIR/enough ]] || return 0
    done
}
: >"$DIR/replays"
replays &
PIDS[replays]=$!
more() { (($(wc -l <"$DIR/replays") >= $1)) || ! kill -0 "${PIDS[replays]}"; } # that many replays have ended
goes_on() { # one more whole replay
    wait_for "a replay" more $(($(wc -l <"$DIR/replays") + 2))
    kill -0 "${PIDS[replays]}" || fail "a replay failed: $(cat "$DIR/err")"
}
goes_on

# ---- a fourth node joins
node_start n4
wait_for "the fourth" has n1 "-n0 n2 n3 n4"
wait_for "the fourth" has n4 "n1 n2 n3"
goes_on
echo "a fourth has joined"

# ---- one node leaves
kill "${PIDS[member_n3]}"
wait "${PIDS[member_n3]}" || fail "tern-member ended with $?"
wait_for "the key of n3 to go" says n3 "n is None"
wait_for "n3 to be no peer" has n1 "-n0 n2 n4"
wait_for "n3 to be no peer" has n4 "n1 n2"
goes_on
echo "one has left"

# ---- etcd is down: leases and all grace times end meanwhile
end_hard etcd
wait_for "the loss" grep -q "event=etcd_lost" "$DIR/n1/member.out"
BEFORE=$(names n1) REMOVED=$(logged n1 peer_removed)
for ((second = 0; second < AWAY; second++)); do
    sleep 1
    [[ $(names n1) == "$BEFORE" ]] || fail "without etcd: $(peers n1), before: $BEFORE"
done
[[ $BEFORE == "n0 n2"* && $(logged n1 peer_removed) == "$REMOVED" ]] || fail "a peer was removed while etcd was away"
etcd_start
for node in n1 n2 n4; do
    wait_for "etcd to be found again" grep -q "event=etcd_back" "$DIR/$node/member.out"
    wait_for "the key" says $node "n['healthy'] and n['incarnation'] == '${LIFE[$node]}'"
done
goes_on
wait_for "n4 to be there" has n1 "-n0 n2 n4"
echo "etcd was away for $AWAY s"

# ---- a node hangs, and is killed
kill -STOP "${PIDS[n4]}"
wait_for "the key to say so" says n4 "not n['healthy'] and n['capacity']['pages'] == 0"
end_hard member_n4
end_hard n4
wait_for "the lease to end" says n4 "n is None"
wait_for "n4 to be no peer" has n1 "-n0 n2"
wait_for "n4 to be no peer" has n2 "n1"
echo "a node has died"

# ---- a restarted tern-member knows which peers it had added
node_start n4
wait_for "n4 to be back" has n1 "-n0 n2 n4"
end_hard member_n1
kill "${PIDS[member_n4]}"
member_start n1
wait_for "n4 to be no peer" has n1 "-n0 n2"

touch "$DIR/enough"
wait "${PIDS[replays]}" || fail "a replay ended with $?: $(cat "$DIR/err")"
! grep -v "^('replay', 0, 0, " "$DIR/replays" || fail "these replays failed"
for node in n1 n2 n3; do
    [[ $(ctl $node status | value 'j["incarnation"]') == "${LIFE[$node]}" ]] || fail "$node was started anew"
done
! grep -h "event=peer_added peer=[^n]\|event=peer_added peer=n9" "$DIR"/*/member.out || fail "a peer that nobody allowed"
echo "member: ok, $(wc -l <"$DIR/replays") replays"

#!/usr/bin/env bash
# Peers join and leave during a replay between two others: no daemon is restarted, no other link goes down, nothing
# fails. A reload leaves peers alone that an operator added, and a slot is used again.
source "$(dirname "$0")/with_ternd.sh"
needs python3 "to check the JSON"
NODES=(prefill decode third late)
declare -A PORT

start() { # NODE
    mkdir -p "$DIR/$1"
    printf 'log_level: info\n' >"$DIR/$1/config.yaml"
    ternd_run "$1" --config "$DIR/$1/config.yaml" --listen 127.0.0.1:0 --insecure_peers --limits.peers 3 \
        --tenant "name=t,socket=$DIR/$1/t.sock,memory=64M"
    PORT[$1]=$(sed -n 's/.* control_port=\([0-9]*\).*/\1/p' "$DIR/$1/log")
}
ctl() { "$CTL" --socket "$DIR/$1/admin.sock" "${@:2}"; }
add() { ctl "$1" peer add "$2" "localhost:${PORT[$2]}" --tenants t >/dev/null; } # a name, which a thread resolves
up() { ctl "$1" peers --json | value "any(p['peer'] == '$2' and p['state'] == 'up' for p in j['peers'])" | grep -q True; }
gone() { ctl "$1" peers --json | value "all(p['peer'] != '$2' for p in j['peers'])" | grep -q True; }
join() { # A B: each becomes a peer of the other, and both links are up
    add "$1" "$2"
    add "$2" "$1"
    wait_for "$1 to reach $2" up "$1" "$2"
    wait_for "$2 to reach $1" up "$2" "$1"
}
replays() { # until the file `stop` exists
    local n=0
    until [[ -e $DIR/stop ]]; do
        "$TERN_BIN/tern-replay" --sessions 6 --turns 4 --concurrency 3 --seed $((++n)) --json \
            --prefill "$DIR/prefill/t.sock,$DIR/prefill/admin.sock" \
            --decode "$DIR/decode/t.sock,$DIR/decode/admin.sock" >"$DIR/json" 2>"$DIR/err" || return 1
        grep -q '"wrong_bytes":0,' "$DIR/json" && grep -q '"failed_requests":0,' "$DIR/json" || return 1
        grep -q '"transferred_pages":[1-9]' "$DIR/json" || return 1
        echo "$n" >"$DIR/runs"
    done
}
others_stay() { # NODE: no link has gone down, except that to the leaving peer
    ! grep "event=link_down .*peer=\(prefill\|decode\|late\) " "$DIR/$1/log" | grep -v "the peer refused this daemon" ||
        fail "another link of $1 went down"
}
runs() { [[ $(cat "$DIR/runs" 2>/dev/null || echo 0) -ge $1 ]] || ! kill -0 "$REPLAYS" 2>/dev/null; }

for node in "${NODES[@]}"; do start "$node"; done
join prefill decode
join prefill third
join decode third
replays &
REPLAYS=$!
wait_for "the first replay" runs 1

# ---- a fourth joins, and the third leaves
join prefill late
join decode late
for node in prefill decode; do ctl $node peer remove third >/dev/null; done
ctl third peer remove prefill >/dev/null
wait_for "the slot to be free" gone prefill third
wait_for "the slot to be free" gone decode third
join late third # a peer that left one daemon can join another
SEEN=$(cat "$DIR/runs")
wait_for "replays after that" runs $((SEEN + 2))
touch "$DIR/stop"
wait "$REPLAYS" || fail "a replay: $(cat "$DIR/json" "$DIR/err")"
for node in prefill decode; do
    others_stay $node
    [[ $(grep -c event=peer_left "$DIR/$node/log") == 1 ]] || fail "$node: not one peer has left"
done
grep -q "event=operator_done act=peer-remove pid=[0-9]* uid=$(id -u) .*err=OK" "$DIR/third/log" || fail "third: not logged"
for node in "${NODES[@]}"; do kill -0 "${PIDS[$node]}" || fail "$node has ended"; done

# ---- slots: limits.peers is 3
add prefill third
ends 1 "late is already a peer, added by an operator" ctl prefill peer add late localhost:1 --tenants t
ends 1 "all 3 slots of limits.peers are in use" ctl prefill peer add fifth localhost:1 --tenants t
ends 1 "no peer is called 'nobody'" ctl prefill peer remove nobody
ends 1 "there is no tenant zork" ctl prefill peer add fifth localhost:1 --tenants zork
ends 1 "needs a restart: no peer had transport auto or verbs at start" ctl prefill peer add fifth localhost:1 --tenants t --transport verbs
ends 2 "neither add nor remove" ctl prefill peer zork

# ---- the file: peers that an operator added stay; those of the file join and leave
ctl prefill peer remove third >/dev/null
wait_for "the slot to be free" gone prefill third
printf 'peers:\n  - {name: third, address: "127.0.0.1:%s", tenants: [t]}\n' "${PORT[third]}" >>"$DIR/prefill/config.yaml"
ends 0 '^peers\[third\]: - -> "127.0.0.1:.*": would be done$' ctl prefill reload --dry-run
ends 0 '^peers\[third\]: - -> "127.0.0.1:.*": done$' ctl prefill reload
add third prefill
wait_for "prefill to reach third" up prefill third
json "$(ctl prefill peers --json)" "{p['peer']: p['origin'] for p in j['peers']} == {'decode': 'operator', 'late': 'operator', 'third': 'file'}"
sed -i "s/127.0.0.1:${PORT[third]}/localhost:${PORT[third]}/" "$DIR/prefill/config.yaml"
ends 0 '^peers\[third\].address: .* -> "localhost:.*": done$' ctl prefill reload
wait_for "the link that is made anew" bash -c "[[ \$(grep -c 'event=link_up .*peer=third dir=out' '$DIR/prefill/log') == 3 ]]"
printf 'log_level: info\n' >"$DIR/prefill/config.yaml"
ends 0 "^1 done; 0 need a restart$" ctl prefill reload
wait_for "the slot to be free" gone prefill third
json "$(ctl prefill peers --json)" "sorted(p['peer'] for p in j['peers']) == ['decode', 'late']"
others_stay prefill

# ---- its tape can be played back
if [[ -x $TERN_BIN/tern-sim ]]; then
    ctl prefill tape "$DIR/tape" --tokens >"$DIR/out"
    if grep -q "complete since the start" "$DIR/out"; then
        "$TERN_BIN/tern-sim" --tape "$DIR/tape" >"$DIR/played" || fail "the tape: $(tail -n 3 "$DIR/played")"
    fi
fi
echo "members: ok"

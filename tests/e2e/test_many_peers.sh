#!/usr/bin/env bash
# The maximum of 4,096 peers, none of which is up: the daemon starts, uses the memory that it
# reported, dials no faster than it may (fault 11), computes next to nothing, and answers operators.
source "$(dirname "$0")/with_ternd.sh"
[[ -z $SANITIZE ]] || skip "a sanitizer brings memory and work of its own"
export MALLOC_ARENA_MAX=1
PEERS=4096
DIALS_PER_S=200 # LINK_DIALS_PER_S of shell/peers/link.h
LOOK_S=5
FEW_PEERS=64
CPU_TIMES_MAX=16 # cost of PEERS at rest, in multiples of FEW_PEERS. It is 3 to 6, as their records are not in the cache

configure() { # N FOLDER: configuration with that many peers, its sockets in the folder
    local i
    printf 'node: e2e\nlisten: 127.0.0.1:0\ninsecure_peers: true\nworkers: 1\nhuge_pages: false\npage_bytes_min: 64K\nlimits: {peers: %d}\n' "$1"
    printf 'admin: {socket: %s}\ntenants:\n  - {name: t0, socket: %s, memory: 8M}\npeers:\n' "$2/admin.sock" "$2/t0.sock"
    for ((i = 0; i < $1; i++)); do
        printf '  - {name: p%d, address: "127.0.0.1:1", tenants: [t0]}\n' "$i"
    done
}

start() { # N: with that many peers; sets SIZE, its address space, and SAID
    configure "$1" "$DIR" >"$DIR/config.yaml"
    "$TERN_BIN/ternd" --config "$DIR/config.yaml" --check-config >"$DIR/out" 2>"$DIR/check" || fail "refused: $(cat "$DIR/check")"
    SAID=$(sed -n 's/^# memory_bytes  *\([0-9]*\) .*/\1/p' "$DIR/out")
    "$TERN_BIN/ternd" --config "$DIR/config.yaml" 2>"$DIR/log" &
    TERND_PID=$!
    ready "$TERND_PID" "$DIR/log"
    SIZE=$(($(sed -n 's/^VmSize:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$TERND_PID/status") * 1024))
}

ctl() { "$CTL" --socket "$DIR/admin.sock" "$@"; }
attempts() { ctl peers --json | value 'sum(p["attempts"] for p in j["peers"])'; }
cpu_ns() { cut -d' ' -f1 "/proc/$1/schedstat"; } # PID: of its owner thread

start 1
! grep -q "descriptors can be open" "$DIR/check" || fail "one peer: $(cat "$DIR/check")"
one_size=$SIZE one_said=$SAID
ternd_stop
begin=${EPOCHREALTIME/./}
start $PEERS
echo "peers=$PEERS start_ms=$(((${EPOCHREALTIME/./} - begin) / 1000))"
(ulimit -n 1000 && "$TERN_BIN/ternd" --config "$DIR/config.yaml" --check-config >/dev/null 2>"$DIR/check") || fail "refused: $(cat "$DIR/check")"
grep -q "descriptors can be open at a time, .* this process may have 1000 of each" "$DIR/check" || fail "descriptors: $(cat "$DIR/check")"
more=$((SAID - one_said)) real=$((SIZE - one_size))
echo "memory: said $more bytes more than with one peer, has $real; each $((more / PEERS))"
[[ $(((real - more) * 100)) -lt $more && $(((more - real) * 100)) -lt $more ]] || fail "said and real differ by a hundredth"

# Compared with a daemon of few peers in the same seconds: a busy machine affects both.
mkdir "$DIR/few"
configure $FEW_PEERS "$DIR/few" >"$DIR/few/config.yaml"
"$TERN_BIN/ternd" --config "$DIR/few/config.yaml" 2>"$DIR/few/log" &
PIDS[few]=$!
ready "${PIDS[few]}" "$DIR/few/log"
now_us() { echo "${EPOCHREALTIME/./}"; }
begin=$(now_us) before=$(attempts) begun=$(now_us) cpu=$(cpu_ns "$TERND_PID") few=$(cpu_ns "${PIDS[few]}")
sleep $LOOK_S
cpu=$(($(cpu_ns "$TERND_PID") - cpu)) few=$(($(cpu_ns "${PIDS[few]}") - few))
ending=$(now_us) after=$(attempts) end=$(now_us)
# Each query is answered at some time while it is asked: on a busy machine that takes a while.
least=$(((after - before) * 1000000 / (end - begin))) most=$(((after - before) * 1000000 / (ending - begun)))
echo "fault=11 runs=$PEERS injected=$PEERS violations=0 attempts_per_s=$least..$most limit=$DIALS_PER_S"
((most > DIALS_PER_S / 2 && least <= DIALS_PER_S)) || fail "attempts a second: $least to $most"
echo "at rest: $cpu ns in $LOOK_S s, with $FEW_PEERS peers $few ns"
((cpu < few * CPU_TIMES_MAX)) || fail "too much work at rest: $cpu ns in $LOOK_S s, with $FEW_PEERS peers $few ns"

json "$(ctl status --json)" 'j["peers"] == 4096 and j["peers_up"] == 0'
[[ $(ctl peers --json | value 'len(j["peers"]), j["peers"][4095]["peer"]') == "(4096, 'p4095')" ]] || fail "JSON: not each peer"
[[ $(ctl peers | wc -l) == $((PEERS + 1)) ]] || fail "not a line for each peer"
ctl status >"$DIR/out"
grep -q "peers 0 of 4,096 up" "$DIR/out" || fail "status: $(cat "$DIR/out")"
echo "many peers: ok"

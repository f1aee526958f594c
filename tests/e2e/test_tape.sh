#!/usr/bin/env bash
# Tapes of real daemons: a workload goes through a prefill and a decode daemon, both tapes are written out and
# played into a fresh core by tern-sim, and each ends in the state that its daemon was in. Then what a tape without
# its beginning says, and the tape that a crash leaves.
set -euo pipefail
ulimit -c 0 # one daemon is crashed on purpose
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
TERN_BIN=${TERN_BIN:-$HERE/../../build/bin}
DIR=$(mktemp -d /tmp/tern-tape-XXXXXX)
PIDS=()

cleanup() {
    for pid in "${PIDS[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$DIR"
}
trap cleanup EXIT

fail() {
    echo "FAILED: $*" >&2
    tail -n 20 "$DIR"/*/log >&2 2>/dev/null || true
    exit 1
}

for program in ternd ternctl tern-sim tern-replay; do
    [[ -x $TERN_BIN/$program ]] || {
        echo "skipped: $program is not in this build"
        exit 77
    }
done

# ternd_run NODE FLAGS...: in the background; PIDS gets its id.
ternd_run() {
    local node=$1
    shift
    mkdir -p "$DIR/$node"
    "$TERN_BIN/ternd" --node "$node" --admin-socket "$DIR/$node/admin.sock" --huge-pages=no --workers 1 \
        --page-bytes-min 512 --tenant "name=default,socket=$DIR/$node/default.sock,memory=16M,host_memory=16M" "$@" \
        2>"$DIR/$node/log" &
    PIDS+=($!)
}

ready() {
    for _ in $(seq 1200); do
        grep -qs event=ready "$DIR/$1/log" && return 0
        sleep 0.1
    done
    fail "$1 was not ready after 120 s"
}

ctl() {
    local node=$1
    shift
    "$TERN_BIN/ternctl" --socket "$DIR/$node/admin.sock" --json "$@"
}

# value KEY FILE: of a number, a truth or a string
value() {
    local v
    v=$(sed -nE "s/^.*\"$1\": *\"?([^\",}]*)\"?.*$/\1/p" "$2" | head -n 1)
    [[ -n $v ]] || fail "no \"$1\" in $(cat "$2")"
    echo "$v"
}

is() {
    local got
    got=$(value "$1" "$3")
    [[ $got == "$2" ]] || fail "$1 is $got, not $2, in $3: $(cat "$3")"
}

free_ports() {
    python3 -c '
import socket
s = [socket.socket() for _ in range(2)]
for x in s: x.bind(("127.0.0.1", 0))
print(*[x.getsockname()[1] for x in s])' 2>/dev/null || echo $((20000 + RANDOM % 20000)) $((41000 + RANDOM % 20000))
}

read -r PREFILL_PORT DECODE_PORT < <(free_ports)
ternd_run prefill --listen "127.0.0.1:$PREFILL_PORT" --insecure-peers --tape-bytes 64M \
    --peer "name=decode,address=127.0.0.1:$DECODE_PORT,tenants=default"
ternd_run decode --listen "127.0.0.1:$DECODE_PORT" --insecure-peers --tape-bytes 64M \
    --peer "name=prefill,address=127.0.0.1:$PREFILL_PORT,tenants=default"
ready prefill
ready decode

workload() {
    "$TERN_BIN/tern-replay" --prefill "$DIR/prefill/default.sock" --decode "$DIR/decode/default.sock" --profile tiny \
        --page-bytes 512 --sessions 8 --turns 6 --concurrency 4 --pool-pages 250 --host-pages 1000 --seed "$1" --json >"$DIR/replay.json" 2>"$DIR/replay.err" ||
        fail "tern-replay: $(cat "$DIR/replay.json" "$DIR/replay.err")"
    [[ $(value transferred_pages "$DIR/replay.json") -gt 0 ]] || fail "nothing was transferred"
}

# same_state NODE: its tape with tokens ends in the hash that it told with it; without them it is as long and as busy.
same_state() {
    local tape=$DIR/$1.tape
    ctl "$1" tape "$tape" --tokens >"$DIR/told"
    is complete true "$DIR/told"
    is tokens_kept true "$DIR/told"
    "$TERN_BIN/tern-sim" --tape "$tape" --json >"$DIR/kept" || fail "tern-sim could not play the tape of $1"
    is state_hash "$(value core_hash "$DIR/told")" "$DIR/kept"
    is events "$(value recorded "$DIR/told")" "$DIR/kept"
    is incarnation "$(ctl "$1" status | sed -nE 's/.*"incarnation": *"([0-9a-f]*)".*/\1/p')" "$DIR/kept"

    "$TERN_BIN/tern-sim" --tape "$tape" >"$DIR/text"
    [[ $(grep -c ' copied' "$DIR/text") -gt 0 ]] || fail "no copy between the tiers is on the tape of $1"
    ! grep -m 3 ' unknown' "$DIR/text" || fail "events without a name on the tape of $1"

    ctl "$1" tape "$tape" >"$DIR/told"
    is tokens_kept false "$DIR/told"
    "$TERN_BIN/tern-sim" --tape "$tape" --json >"$DIR/mapped" || fail "tern-sim could not play the mapped tape of $1"
    is errors "$(value errors "$DIR/kept")" "$DIR/mapped"
    [[ $(value state_hash "$DIR/mapped") != $(value core_hash "$DIR/told") ]] ||
        fail "a tape of $1 without its token ids gave their hash"
    echo "$1: $(value events "$DIR/kept") events, state $(value state_hash "$DIR/kept")"
}

workload 1
same_state prefill
same_state decode
workload 2 # and on from there: the tape still begins at the start
same_state prefill
same_state decode

# A byte of the tape changed on disk is no longer a tape that ends there.
ctl prefill tape "$DIR/bad.tape" --tokens >"$DIR/told"
truncate -s -8 "$DIR/bad.tape"
if "$TERN_BIN/tern-sim" --tape "$DIR/bad.tape" --json >/dev/null 2>"$DIR/err"; then
    fail "a tape that was cut off was played to its end"
fi
grep -q MALFORMED "$DIR/err" || fail "a tape that was cut off: $(cat "$DIR/err")"

# A small ring: it has lost the beginning and says so.
ternd_run small --tape-bytes 4K
ready small
for _ in $(seq 60); do ctl small status >/dev/null; done
ctl small tape "$DIR/small.tape" >"$DIR/told"
is complete false "$DIR/told"
[[ $(value dropped "$DIR/told") -gt 0 ]] || fail "nothing was dropped"

# A crash leaves the tape where the configuration says, and it is played back.
ternd_run crash --tape-file "$DIR/crash.tape"
ready crash
ctl crash status >/dev/null
disown "${PIDS[-1]}" # its end is wanted, and no line of the shell's about it
kill -SEGV "${PIDS[-1]}"
for _ in $(seq 600); do
    kill -0 "${PIDS[-1]}" 2>/dev/null || break
    sleep 0.1
done
kill -0 "${PIDS[-1]}" 2>/dev/null && fail "the daemon lives on after a crash"
[[ -s $DIR/crash.tape ]] || fail "the crash left no tape"
"$TERN_BIN/tern-sim" --tape "$DIR/crash.tape" --json >"$DIR/kept" || fail "the tape of a crash cannot be played"
is complete true "$DIR/kept"
# The daemon's own connection and ternctl's: whether that one's end came before the crash is chance.
[[ $(value events "$DIR/kept") -ge 2 ]] || fail "the tape of a crash is too short: $(cat "$DIR/kept")"
echo "test_tape: ok"

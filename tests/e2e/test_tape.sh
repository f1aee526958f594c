#!/usr/bin/env bash
# Tapes of real daemons: a workload goes through a prefill and a decode daemon, both tapes are written out and
# played into a fresh core by tern-sim, and each ends in the state that its daemon was in. Then what a tape without
# its beginning says, and the tape that a crash leaves.
source "$(dirname "$0")/with_ternd.sh"
ulimit -c 0 # one daemon is crashed on purpose
for program in ternd ternctl tern-sim tern-replay; do
    [[ -x $TERN_BIN/$program ]] || skip "$program is not in this build"
done
needs python3 "to find free ports"

# daemon NODE FLAGS...
daemon() {
    ternd_run "$1" --page-bytes-min 512 \
        --tenant "name=default,socket=$DIR/$1/default.sock,memory=16M,host_memory=16M" "${@:2}"
}

ctl() {
    local node=$1
    shift
    "$TERN_BIN/ternctl" --socket "$DIR/$node/admin.sock" --json "$@"
}

# at KEY FILE: of a number, a truth or a string
at() {
    local v
    v=$(sed -nE "s/^.*\"$1\": *\"?([^\",}]*)\"?.*$/\1/p" "$2" | head -n 1)
    [[ -n $v ]] || fail "no \"$1\" in $(cat "$2")"
    echo "$v"
}

is() {
    local got
    got=$(at "$1" "$3")
    [[ $got == "$2" ]] || fail "$1 is $got, not $2, in $3: $(cat "$3")"
}

read -r PREFILL_PORT DECODE_PORT < <(python3 -c '
import socket
s = [socket.socket() for _ in range(2)]
for x in s: x.bind(("127.0.0.1", 0))
print(*[x.getsockname()[1] for x in s])')
daemon prefill --listen "127.0.0.1:$PREFILL_PORT" --insecure-peers --tape-bytes 64M \
    --peer "name=decode,address=127.0.0.1:$DECODE_PORT,tenants=default"
daemon decode --listen "127.0.0.1:$DECODE_PORT" --insecure-peers --tape-bytes 64M \
    --peer "name=prefill,address=127.0.0.1:$PREFILL_PORT,tenants=default"

workload() {
    "$TERN_BIN/tern-replay" --prefill "$DIR/prefill/default.sock" --decode "$DIR/decode/default.sock" --profile tiny \
        --page-bytes 512 --sessions 8 --turns 6 --concurrency 4 --pool-pages 250 --host-pages 1000 --seed "$1" --json >"$DIR/replay.json" 2>"$DIR/replay.err" ||
        fail "tern-replay: $(cat "$DIR/replay.json" "$DIR/replay.err")"
    [[ $(at transferred_pages "$DIR/replay.json") -gt 0 ]] || fail "nothing was transferred"
}

# same_state NODE: its tape with tokens ends in the hash that it told with it; without them it is as long and as busy.
same_state() {
    local tape=$DIR/$1.tape
    ctl "$1" tape "$tape" --tokens >"$DIR/told"
    is complete true "$DIR/told"
    is tokens_kept true "$DIR/told"
    "$TERN_BIN/tern-sim" --tape "$tape" --json >"$DIR/kept" || fail "tern-sim could not play the tape of $1"
    is state_hash "$(at core_hash "$DIR/told")" "$DIR/kept"
    is events "$(at recorded "$DIR/told")" "$DIR/kept"
    is incarnation "$(ctl "$1" status | sed -nE 's/.*"incarnation": *"([0-9a-f]*)".*/\1/p')" "$DIR/kept"

    "$TERN_BIN/tern-sim" --tape "$tape" >"$DIR/text"
    [[ $(grep -c ' copied' "$DIR/text") -gt 0 ]] || fail "no copy between the tiers is on the tape of $1"
    ! grep -m 3 ' unknown' "$DIR/text" || fail "events without a name on the tape of $1"

    ctl "$1" tape "$tape" >"$DIR/told"
    is tokens_kept false "$DIR/told"
    "$TERN_BIN/tern-sim" --tape "$tape" --json >"$DIR/mapped" || fail "tern-sim could not play the mapped tape of $1"
    is errors "$(at errors "$DIR/kept")" "$DIR/mapped"
    [[ $(at state_hash "$DIR/mapped") != $(at core_hash "$DIR/told") ]] ||
        fail "a tape of $1 without its token ids gave their hash"
    echo "$1: $(at events "$DIR/kept") events, state $(at state_hash "$DIR/kept")"
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
rc=0
"$TERN_BIN/tern-sim" --tape "$DIR/bad.tape" --json >/dev/null 2>"$DIR/err" || rc=$?
[[ $rc != 0 ]] && grep -q MALFORMED "$DIR/err" || fail "a tape that was cut off: $rc: $(cat "$DIR/err")"

# A small ring: it has lost the beginning and says so.
daemon small --tape-bytes 4K
for _ in $(seq 60); do ctl small status >/dev/null; done
ctl small tape "$DIR/small.tape" >"$DIR/told"
is complete false "$DIR/told"
[[ $(at dropped "$DIR/told") -gt 0 ]] || fail "nothing was dropped"

# A crash leaves the tape where the configuration says, and it is played back.
daemon crash --tape-file "$DIR/crash.tape"
ctl crash status >/dev/null
kill -SEGV "${PIDS[crash]}"
rc=0
wait "${PIDS[crash]}" 2>/dev/null || rc=$?
[[ $rc == 139 ]] || fail "the daemon ended with $rc, not by SIGSEGV"
[[ -s $DIR/crash.tape ]] || fail "the crash left no tape"
"$TERN_BIN/tern-sim" --tape "$DIR/crash.tape" --json >"$DIR/kept" || fail "the tape of a crash cannot be played"
is complete true "$DIR/kept"
# The daemon's own connection and ternctl's: whether that one's end came before the crash is chance.
[[ $(at events "$DIR/kept") -ge 2 ]] || fail "the tape of a crash is too short: $(cat "$DIR/kept")"
echo "test_tape: ok"

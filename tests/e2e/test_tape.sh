#!/usr/bin/env bash
# Tapes of real daemons: ternctl shows as many events as they have. A workload runs through a
# prefill and a decode daemon, tern-sim plays both tapes into a fresh core, and each ends in the
# state of its daemon. Then a tape without its beginning, and the tape that a crash leaves.
source "$(dirname "$0")/with_ternd.sh"
ulimit -c 0 # one daemon is crashed on purpose
for program in ternd ternctl tern-sim tern-replay; do
    [[ -x $TERN_BIN/$program ]] || skip "$program is not in this build"
done
needs python3 "to read figures"

# daemon NODE FLAGS...
daemon() {
    ternd_run "$1" --page_bytes_min 512 \
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

free_ports PREFILL_PORT DECODE_PORT
daemon prefill --listen "127.0.0.1:$PREFILL_PORT" --insecure_peers --tape.bytes 64M \
    --peer "name=decode,address=127.0.0.1:$DECODE_PORT,tenants=default"
daemon decode --listen "127.0.0.1:$DECODE_PORT" --insecure_peers --tape.bytes 64M \
    --peer "name=prefill,address=127.0.0.1:$PREFILL_PORT,tenants=default"

workload() {
    "$TERN_BIN/tern-replay" --prefill "$DIR/prefill/default.sock" --decode "$DIR/decode/default.sock" --profile tiny \
        --page-bytes 512 --sessions 8 --turns 6 --concurrency 4 --pool-pages 250 --host-pages 1000 --seed "$1" --json >"$DIR/replay.json" 2>"$DIR/replay.err" ||
        fail "tern-replay: $(cat "$DIR/replay.json" "$DIR/replay.err")"
    [[ $(at transferred_pages "$DIR/replay.json") -gt 0 ]] || fail "nothing was transferred"
}

# same_state NODE: its tape with tokens ends in its printed hash; without, it has as many errors.
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
    shown "$1" "$tape"
    echo "$1: $(at events "$DIR/kept") events, state $(at state_hash "$DIR/kept")"
}

# shown NODE FILE: reads the file without a daemon; every event is shown, with --json and without
shown() {
    local socket=$DIR/nobody.sock
    "$TERN_BIN/ternctl" --socket "$socket" tape read "$2" >"$DIR/text"
    "$TERN_BIN/ternctl" --socket "$socket" tape read "$2" --json >"$DIR/lines"
    python3 - "$DIR/text" "$DIR/lines" "$1" <<'PY' || fail "what ternctl shows of the tape of $1"
import json, sys
text = open(sys.argv[1]).read().splitlines()
head, *rows = [json.loads(line) for line in open(sys.argv[2])]
assert head["complete"] is True and head["tokens_kept"] is False and head["first"] == 0, head
assert head["events"] == len(rows) == len(text) - 1 > 0, (head, len(rows), len(text))
assert [r["number"] for r in rows] == list(range(len(rows)))
assert all(a["at_ns"] <= b["at_ns"] for a, b in zip(rows, rows[1:]))
assert all(r["event"] != "unknown" for r in rows)
ops = {r["op"] for r in rows if r["event"] == "request"}
assert {"join", "session_open", "match", "step"} <= ops, ops
if sys.argv[3] == "decode":
    assert "fetch" in ops and any(r["event"] == "pulled" and r["right"] > 0 for r in rows), ops
for line, r in zip(text[1:], rows):
    number, _, _, event = line.split()[:4]
    assert int(number.replace(",", "")) == r["number"] and event == r["event"], (line, r)
    assert all(f"{k}={v}" in line for k, v in r.items() if k not in ("number", "at_ns", "event")), (line, r)
PY
}

workload 1
same_state prefill
same_state decode
workload 2 # continues: the tape still begins at the start
same_state prefill
same_state decode

# A tape that was cut off on disk is refused.
ctl prefill tape "$DIR/bad.tape" --tokens >"$DIR/told"
truncate -s -8 "$DIR/bad.tape"
rc=0
"$TERN_BIN/tern-sim" --tape "$DIR/bad.tape" --json >/dev/null 2>"$DIR/err" || rc=$?
[[ $rc != 0 ]] && grep -q MALFORMED "$DIR/err" || fail "a tape that was cut off: $rc: $(cat "$DIR/err")"

# ternctl shows the intact part, and then the error; other files, and tapes of another version, have errors of their own.
# unreadable ERROR PATTERN FILE
unreadable() {
    local rc=0
    "$TERN_BIN/ternctl" tape read "$3" --json >"$DIR/lines" 2>"$DIR/err" || rc=$?
    [[ $rc == 1 ]] && grep -q "$2" "$DIR/err" || fail "tape read $3: $rc: $(cat "$DIR/err")"
    json "$(tail -n 1 "$DIR/lines")" "j['error'] == '$1' and list(j) == ['error', 'text']"
}
unreadable MALFORMED "damaged or cut off behind event" "$DIR/bad.tape"
# The last event was cut; the head comes first, the error last.
[[ $(wc -l <"$DIR/lines") == $(($(at recorded "$DIR/told") + 1)) ]] || fail "not what is whole: $(wc -l "$DIR/lines") of $(cat "$DIR/told")"
head -c 20 "$DIR/bad.tape" >"$DIR/cut.tape"
unreadable MALFORMED "the file is not a daemon's tape" "$DIR/cut.tape"
: >"$DIR/empty.tape"
unreadable MALFORMED "the file is not a daemon's tape" "$DIR/empty.tape"
{ head -c 8 "$DIR/bad.tape" && printf '\377' && tail -c +10 "$DIR/bad.tape"; } >"$DIR/other.tape"
unreadable UNSUPPORTED "of another version wrote the tape" "$DIR/other.tape"
unreadable DISK "the file cannot be read" "$DIR"
unreadable FAILED "No such file" "$DIR/nothing.tape"

# A small ring has lost its beginning and reports it.
daemon small --tape.bytes 4K
for _ in $(seq 60); do ctl small status >/dev/null; done
ctl small tape "$DIR/small.tape" >"$DIR/told"
is complete false "$DIR/told"
[[ $(at dropped "$DIR/told") -gt 0 ]] || fail "nothing was dropped"
"$TERN_BIN/ternctl" tape read "$DIR/small.tape" >"$DIR/text"
grep -q ", without its beginning, which was overwritten; token ids are replaced by hashes$" "$DIR/text" || fail "what is shown of it: $(head -n 3 "$DIR/text")"
[[ $(wc -l <"$DIR/text") -gt 2 && $(sed -n 2p "$DIR/text") =~ ^" "*$(at dropped "$DIR/told" | rev | sed 's/.../&,/g; s/,$//' | rev)" " ]] ||
    fail "the first event is not the one behind those that were dropped: $(head -n 3 "$DIR/text")"

# A crash writes the tape to the configured path, and tern-sim plays it.
daemon crash --tape.file "$DIR/crash.tape"
ctl crash status >/dev/null
kill -SEGV "${PIDS[crash]}"
rc=0
wait "${PIDS[crash]}" 2>/dev/null || rc=$?
[[ $rc == 139 ]] || fail "the daemon ended with $rc, not by SIGSEGV"
[[ -s $DIR/crash.tape ]] || fail "the crash left no tape"
"$TERN_BIN/tern-sim" --tape "$DIR/crash.tape" --json >"$DIR/kept" || fail "the tape of a crash cannot be played"
is complete true "$DIR/kept"
# At least the connections of the daemon and of ternctl: the latter may end before the crash.
[[ $(at events "$DIR/kept") -ge 2 ]] || fail "the tape of a crash is too short: $(cat "$DIR/kept")"
echo "test_tape: ok"

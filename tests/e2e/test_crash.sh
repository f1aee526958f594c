#!/usr/bin/env bash
# The remains of a daemon that ends by a bug, or by a signal that stands for one: a tape for each crash, which tern-sim
# plays, up to the number kept, and a line in its log. A full disk at that moment damages no existing tape.
source "$(dirname "$0")/with_ternd.sh"
ulimit -c 0 # daemons are crashed on purpose
KEPT=$(sed -nE 's/^#define TAPE_CRASHES_KEPT ([0-9]+)$/\1/p' "$TERN_SOURCE/daemon/shell/tape/tape.h")
SMALL=

unmount() {
    [[ -z $SMALL ]] || umount "$SMALL" 2>/dev/null || true
    cleanup
}
trap unmount EXIT

# crash SIGNAL: the daemon ends by it
crash() {
    local rc=0
    kill "-$1" "$TERND_PID"
    wait "$TERND_PID" 2>/dev/null || rc=$?
    TERND_PID=
    [[ $rc == $((128 + $(kill -l "$1"))) ]] || fail "SIG$1: the daemon ended with $rc"
}

# tape_of_log: the path of the tape in the log of the crash
tape_of_log() {
    [[ $(grep -c "event=crash" "$DIR/log") == 1 ]] || fail "not one line for one crash"
    sed -nE 's/^ts=.* level=error event=crash .* tape="([^"]*)"$/\1/p' "$DIR/log"
}

# ---- a tape for each crash, with the daemon's incarnation
TAPES=()
for signal in ABRT SEGV; do
    ternd_start "" 16M 1
    "$CTL" status >/dev/null
    INCARNATION=$("$CTL" status --json | sed -nE 's/.*"incarnation": *"([0-9a-f]*)".*/\1/p' | head -n 1)
    crash $signal
    TAPE=$(tape_of_log)
    [[ $TAPE == "$ADMIN.tape.$INCARNATION" ]] || fail "SIG$signal: the tape is said to be in '$TAPE'"
    grep -q "event=crash signal=SIG$signal code=0 sender_pid=$$ " "$DIR/log" || fail "the log does not say who sent SIG$signal"
    TAPES+=("$TAPE")
done
for tape in "${TAPES[@]}"; do
    [[ -s $tape ]] || fail "$tape is gone"
    "$TERN_BIN/tern-sim" --tape "$tape" --json >"$DIR/kept" || fail "$tape cannot be played"
    grep -q "\"incarnation\": *\"${tape##*.}\"" "$DIR/kept" || fail "$tape is of another daemon: $(cat "$DIR/kept")"
done

# ---- the oldest are removed, except the last KEPT
for _ in $(seq "$KEPT"); do
    ternd_start "" 16M 1
    crash ABRT
done
[[ $(ls "$ADMIN".tape.* | wc -l) == "$KEPT" ]] || fail "not $KEPT tapes: $(ls "$ADMIN".tape.*)"
[[ ! -e ${TAPES[0]} && ! -e ${TAPES[1]} ]] || fail "the oldest were kept: $(ls "$ADMIN".tape.*)"

# ---- a full disk: the existing tape stays, and the log has the cause
ternd_start "" 16M 1
"$CTL" tape "$DIR/a.tape" >/dev/null
cp "$DIR/a.tape" "$DIR/before"
for _ in $(seq 60); do "$CTL" status >/dev/null; done # a longer tape: only the log must still fit
prlimit --pid "$TERND_PID" --fsize=4096:4096
ends 1 "File too large: raise RLIMIT_FSIZE" "$CTL" tape "$DIR/a.tape"
cmp -s "$DIR/a.tape" "$DIR/before" || fail "what was there was lost"
[[ ! -e $DIR/a.tape.tmp ]] || fail "a piece was left behind"
crash ABRT
grep -q "event=crash .* tape=none reason=EFBIG path=" "$DIR/log" || fail "no room for the tape of a crash, and no word of it"
ternd_start "" 16M 1
mkdir "$DIR/small"
if mount -t tmpfs -o size=64k none "$DIR/small" 2>/dev/null; then
    SMALL=$DIR/small
    "$CTL" tape "$SMALL/a.tape" >/dev/null
    cp "$SMALL/a.tape" "$DIR/before"
    dd if=/dev/zero of="$SMALL/rest" bs=4096 2>/dev/null || true
    ends 1 "No space left on device: free space" "$CTL" tape "$SMALL/a.tape"
    cmp -s "$SMALL/a.tape" "$DIR/before" || fail "what was there was lost when the disk was full"
    [[ ! -e $SMALL/a.tape.tmp ]] || fail "a piece was left behind on a full disk"
    rm "$SMALL/rest"
    "$CTL" tape "$SMALL/a.tape" >/dev/null || fail "there is room again"
else
    echo "not done: a small tmpfs could not be mounted"
fi
ends 1 "No such file or directory: give it a path in a folder that exists" "$CTL" tape "$DIR/no/a.tape"
ends 1 "a plain file" "$CTL" tape /dev/full
[[ -c /dev/full ]] || fail "it replaced a device"
"$CTL" status >/dev/null || fail "the daemon did not go on"
echo "crash: ok"

#!/usr/bin/env bash
# tern-replay without a trace: generated sessions, each profile, ranks, refused options and their
# errors, bad traces; and a run leaves no process and no folder behind, however it ends.
. "$(dirname "$0")/replay_lib.sh"
export TMPDIR=$DIR
needs pgrep "(package procps)"

# refused STATUS TEXT ARGS...: ends with that status and prints TEXT.
refused() {
    local status=$1 text=$2 got=0
    shift 2
    "$TERN_BIN/tern-replay" "$@" >"$DIR/json" 2>"$DIR/err" || got=$?
    [ "$got" -eq "$status" ] || fail "exit status $got, not $status: tern-replay $*"
    grep -qF -- "$text" "$DIR/err" || fail "it does not say \"$text\": tern-replay $*"
}

nothing_left() {
    [ -z "$(find "$DIR" -mindepth 1 -maxdepth 1 -name 'tern-*')" ] || fail "a folder was left behind"
    ! pgrep -f "$DIR/tern-replay" >/dev/null || fail "a process was left behind: $(pgrep -a -f "$DIR/tern-replay")"
}

# The same seed gives the same figures, another seed others; turns find prefixes of earlier turns.
replay --seed 7 --sessions 12 --turns 6
is requests 72
first="$(field prompt_tokens) $(field matched_tokens)"
[ "$(field matched_tokens)" -gt $(($(field prompt_tokens) / 2)) ] || fail "turns hardly share anything"
replay --seed 7 --sessions 12 --turns 6
[ "$first" = "$(field prompt_tokens) $(field matched_tokens)" ] || fail "the same seed gave other figures"
replay --seed 8 --sessions 12 --turns 6
[ "$first" != "$(field prompt_tokens) $(field matched_tokens)" ] || fail "another seed gave the same figures"

replay --profile tiny-256 --sessions 8 --turns 5 --concurrency 6
replay --profile tiny --ranks 4:4 --sessions 6 --turns 4 --concurrency 3
replay --profile deepseek-v3 --ranks 2:2 --sessions 2 --turns 2 --page-bytes 65536
is transferred_bytes $(($(field transferred_pages) * 65536)) # X5: its ranks have the same data, which moves once
replay --profile llama-70b --ranks 2:2 --sessions 1 --turns 1
replay --sessions 24 --turns 10 --concurrency 12 --pool-pages 700 --seed 3
nothing_left

# Cost and gain of supersession, one request at a time: lazy loses no resume point, and uses the
# pages that live resume points need; eager and off are the two extremes.
state=(--profile tiny-state --sessions 12 --turns 10 --concurrency 1 --seed 5)
replay "${state[@]}" --supersede off
is lost_resumable_tokens 0 state_reclaimable_peak 0
off=$(field state_pages_peak)
matched=$(field matched_tokens)
replay "${state[@]}" --supersede lazy
is lost_resumable_tokens 0 matched_tokens "$matched"
[ "$(field state_pages_peak)" -lt $((off / 4)) ] || fail "lazy: $(field state_pages_peak) pages in use, off: $off"
[ "$(field state_reclaimable_peak)" -gt 0 ] || fail "lazy: nothing was reclaimable"
replay "${state[@]}" --supersede eager
is state_reclaimable_peak 0
[ "$(field lost_resumable_tokens)" -gt 0 ] || fail "eager lost nothing: the oracle sees nothing"
[ $(($(field matched_tokens) + $(field lost_resumable_tokens))) -eq "$matched" ] || fail "matched and lost are not what was there"
[ "$(field state_pages_peak)" -lt $((off / 4)) ] || fail "eager: $(field state_pages_peak) pages in use, off: $off"

# The decode daemon's counters are read before the engines begin, however late it is connected.
cat >"$DIR/late.c" <<'C'
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
int connect(int fd, const struct sockaddr *to, socklen_t len)
{
    if (to->sa_family == AF_UNIX && strstr(((const struct sockaddr_un *)to)->sun_path, "decode.admin"))
        usleep(500000);
    return (int)syscall(SYS_connect, fd, to, len);
}
C
if "$CC" -shared -fPIC "$DIR/late.c" -o "$DIR/late.so" && [[ $(ldd "$TERN_BIN/tern-replay") != *lib[at]san* ]]; then
    LD_PRELOAD=$DIR/late.so replay --sessions 6 --turns 4 --corrupt 50
    is requests 24 corrupt_detected 50 transferred_bytes $((($(field transferred_pages) + 50) * 4096))
fi

refused 2 "both sides must have equal numbers of ranks" --spawn --ranks 1:2
replay --profile tiny-state --sessions 12 --turns 6 --concurrency 4
replay --profile tiny-state --ranks 2:2 --sessions 6 --turns 4 --concurrency 3 --supersede eager
replay --profile hybrid --sessions 8 --turns 5 --concurrency 4
replay --profile deepseek-v4 --page-bytes 512 --sessions 6 --turns 6 --concurrency 3 --supersede off
refused 2 "no such profile" --spawn --profile large
refused 2 "must divide" --spawn --ranks 3:3
refused 2 "either --spawn" --sessions 2
refused 2 "lazy, eager or off" --spawn --supersede never
refused 2 "--aborts needs --tickets" --spawn --aborts 0.5
refused 2 "a number from 0 to 1" --spawn --tickets --aborts 2
refused 2 "No such file" --spawn --trace "$DIR/none.jsonl"

good='{"timestamp": 0, "input_length": 100, "output_length": 1, "hash_ids": [1]}'
bad() { # bad LINE TEXT: the second line is LINE
    printf '%s\n%s\n' "$good" "$1" >"$DIR/trace.jsonl"
    refused 2 "trace.jsonl:2: $2" --spawn --trace "$DIR/trace.jsonl"
}
bad '{"timestamp": 0, "input_length": 100' "not JSON"
bad '[1]' "a line must be one JSON object"
bad '{"output_length": 1, "hash_ids": []}' '"input_length" is missing'
bad '{"input_length": 0, "output_length": 1, "hash_ids": []}' '"input_length" must be an integer from 1'
bad '{"input_length": 99999999, "output_length": 1, "hash_ids": []}' '"input_length" must be'
bad '{"input_length": 10, "output_length": 1, "hash_ids": [1, 2]}' '2 "hash_ids" are more'
bad '{"input_length": 10, "output_length": 1, "hash_ids": ["a"]}' '"hash_ids"[0] must be an integer'
bad '{"input_length": 10, "output_length": 1, "hash_ids": [-1]}' '"hash_ids"[0] must be an integer'
bad '{"input_length": 10, "output_length": 1, "hash_ids": [1], "block_size": 0}' '"block_size" must be'
nothing_left

# A pool that can never have room for the longest request: that request fails with a typed error,
# and nothing else does.
refused 1 "waiting does not help" --spawn --json --sessions 2 --turns 3 --pool-pages 20
[ "$(field failed_requests)" -gt 0 ] || fail "nothing failed with a pool of 20 pages"
is wrong_bytes 0 leaked_pages 0

# The report of a failed request has the daemon's text, too.
refused 1 "failed after 0 repetitions: a value is out of range or does not fit the object's state: no such peer" \
    --spawn --json --sessions 1 --turns 1 --peer nobody

# Interrupted and killed in the middle, when both daemons and both engines run. Each run has a
# session of its own, so that its processes can be identified.
running() { pgrep -s "$1" -r R,S,D,T | wc -l; }
becomes() { # SESSION TEST NUMBER: that many processes run
    [ "$(running "$1")" "$2" "$3" ]
}
session=
trap '[ -z "$session" ] || pkill -KILL -s "$session"; cleanup' EXIT
for signal in INT KILL; do
    setsid "$TERN_BIN/tern-replay" --spawn --sessions 200 --turns 30 >/dev/null 2>"$DIR/err" &
    pid=$! session=$!
    wait_for "five processes" becomes "$pid" -ge 5
    kill -"$signal" "$pid"
    wait "$pid" 2>/dev/null && fail "it had ended before SIG$signal"
    wait_for "the end of all processes after SIG$signal" becomes "$pid" -eq 0
    session=
    [ "$signal" = KILL ] || nothing_left
done
echo "all passed"

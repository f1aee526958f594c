#!/usr/bin/env bash
# Real traces through two daemons. Matches must be exactly those that an independent oracle finds, every byte is
# compared, and pools that are too small, host tiers, retraction, corrupted pages and several ranks change no byte. The
# first 2,000 requests of each trace; all of them with TERN_FULL=1. Needs the traces: exit 77 without them.
. "$(dirname "$0")/replay_lib.sh"

traces=${TERN_TRACES:-}
[ -n "$traces" ] || skip "TERN_TRACES names no folder of traces"
for f in conversation agentic; do
    [ -r "$traces/$f.jsonl" ] || skip "no $traces/$f.jsonl: TERN_TRACES names the folder of traces"
done
needs python3 "by the oracle"

limit=2000
[ "${TERN_FULL:-0}" = 1 ] && limit=100000000

# exact TRACE PROFILE L: an unlimited cache, one request at a time.
exact() {
    read -r matched pages tokens < <(python3 "$HERE/trace_oracle.py" "$traces/$1.jsonl" "$3" "$limit")
    replay --trace "$traces/$1.jsonl" --limit "$limit" --profile "$2" --page-bytes 512 --concurrency 1
    is matched_tokens "$matched" prompt_pages "$pages" prompt_tokens "$tokens" retries 0
    # The page bytes on the wire are exactly those pages, each once.
    is transferred_bytes $(($(field transferred_pages) * 512))
    echo "  matched_tokens $matched, $(field elapsed_s) s"
}

exact conversation tiny 64
conversation_matched=$matched
exact agentic tiny 64
agentic_matched=$matched
exact conversation tiny-256 256
exact agentic tiny-256 256
if [ "${TERN_FULL:-0}" = 1 ]; then # and the figures published with the traces
    [ "$conversation_matched" = 54093952 ] || fail "conversation.jsonl is another file than the one described"
    [ "$agentic_matched" = 44260736 ] || fail "agentic.jsonl is another file than the one described"
fi

# Tern's overhead on the data connections. The whole trace takes 6 GB in each daemon.
some=400
free_kib=$(awk '/MemAvailable/ { print $2 }' /proc/meminfo)
[ "${TERN_FULL:-0}" = 1 ] && [ "$free_kib" -gt 15000000 ] && some=$limit
replay --trace "$traces/conversation.jsonl" --limit "$some" --profile tiny --page-bytes 4096
[ $(($(field socket_bytes) * 100)) -le $(($(field transferred_bytes) * 102)) ] || fail "more than 2 % on top of the pages"
[ "$(field socket_bytes)" -gt "$(field transferred_bytes)" ] || fail "headers and checksums weigh nothing: they are not counted"

# Pools too small: the first run must evict, so it finds less than the oracle.
replay --trace "$traces/conversation.jsonl" --limit "$limit" --profile tiny --page-bytes 512 --concurrency 16 \
    --pool-pages 14000
[ "$(field matched_tokens)" -lt "$conversation_matched" ] || fail "14,000 pages held everything: nothing was tried"
replay --trace "$traces/agentic.jsonl" --limit "$limit" --profile tiny --page-bytes 512 --concurrency 8 --pool-pages 13000

# Pools so small that running sessions are retracted, half computed or handed over, and recovered: from the host tier,
# or with their prefix pinned if there is none. Recovered bytes are compared before a session resumes.
# gives_way RETRACTS RECOVERS HOST_HITS ARGS...: the least number of each.
gives_way() {
    local retracts=$1 recovers=$2 hits=$3
    shift 3
    replay --trace "$traces/agentic.jsonl" --page-bytes 512 --concurrency 8 --prefill-tokens 2048 "$@"
    echo "  retracts $(field retracts), recovers $(field recovers), pages compared then $(field recovered_pages)," \
        "host_hit_tokens $(field host_hit_tokens), retries $(field retries), $(field elapsed_s) s"
    [ "$(field retracts)" -ge "$retracts" ] || fail "fewer than $retracts retracts: nothing was tried"
    [ "$(field recovers)" -ge "$recovers" ] || fail "fewer than $recovers recovers"
    [ "$(field recovers)" -le "$(field retracts)" ] || fail "more came back than went"
    [ "$(field recovered_pages)" -gt "$(field recovers)" ] || fail "nothing was compared after the recovers"
    [ "$(field host_hit_tokens)" -ge "$hits" ] || fail "the host tier gave fewer than $hits tokens"
}
gives_way 100 80 1000000 --limit "$limit" --profile deepseek-v4 --pool-pages 1200 --host-pages 20000
gives_way 50 30 1000000 --limit 500 --profile hybrid --pool-pages 3000 --host-pages 8000
gives_way 50 30 100000 --limit 500 --profile tiny --pool-pages 2500 --host-pages 2000
gives_way 20 10 1000000 --limit 300 --profile tiny --pool-pages 2500 --host-pages 30000 --ranks 2:2
gives_way 30 15 0 --limit 500 --profile tiny-state --pool-pages 3000
is host_hit_tokens 0

# Device and host together keep nearly as much as a device of both sizes: here at least as much as one of 1.9 times.
both_tiers() { # TRACE PAGES ALONE
    local one=(--trace "$traces/$1.jsonl" --profile tiny --page-bytes 512 --concurrency 1) both
    replay "${one[@]}" --pool-pages "$2" --host-pages "$2"
    both=$(field matched_tokens)
    echo "  $1: $2 + $2 pages matched $both, $(field host_hit_tokens) of them from the host, $(field elapsed_s) s"
    replay "${one[@]}" --pool-pages "$3"
    echo "  $1: $3 pages matched $(field matched_tokens), $(field elapsed_s) s"
    [ "$both" -ge "$(field matched_tokens)" ] || fail "a device of $3 pages alone matches more"
}
both_tiers agentic 4000 7600
[ "${TERN_FULL:-0}" = 1 ] && both_tiers conversation 32000 60800

# Every 40th copy between the tiers arrives damaged: each is detected, no engine sees one, and lost
# pages are recomputed.
cat >"$DIR/ternd" <<END
#!/bin/sh
exec "$TERN_BIN/ternd" "\$@" --faults.copy_corrupt_every 40
END
chmod +x "$DIR/ternd"
TERND=$DIR/ternd gives_way 50 30 1 --limit 500 --profile tiny --pool-pages 2500 --host-pages 30000

if [ "${TERN_FULL:-0}" = 1 ]; then
    gives_way 100 50 1000000 --profile tiny-state --pool-pages 3000 --host-pages 30000
    gives_way 100 50 1000000 --profile hybrid --pool-pages 3000 --host-pages 30000
    gives_way 100 50 0 --profile deepseek-v4 --pool-pages 1000 --supersede eager
fi

# Pages corrupted on the way: each is detected, and no engine sees one.
replay --trace "$traces/conversation.jsonl" --limit 300 --profile tiny --page-bytes 512 --concurrency 4 --corrupt 1000
is corrupt_detected 1000

# Two rank processes a side.
replay --trace "$traces/agentic.jsonl" --limit 60 --profile tiny --concurrency 4 --ranks 2:2
echo "all passed"

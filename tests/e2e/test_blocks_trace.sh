#!/usr/bin/env bash
# Real traces through blocks, with the pages of each engine: SGLang's of 64 tokens, vLLM's of 16, LMCache's of 256. In pools
# with room for everything blocks find exactly what sessions find, to the page. The first 300 requests of each trace; all of
# them with TERN_FULL=1. Needs the traces: exit 77 without them.
. "$(dirname "$0")/replay_lib.sh"

traces=${TERN_TRACES:-}
[ -n "$traces" ] || skip "TERN_TRACES names no folder of traces"
for f in conversation agentic; do
    [ -r "$traces/$f.jsonl" ] || skip "no $traces/$f.jsonl: TERN_TRACES names the folder of traces"
done
PYTHON=$TERN_SOURCE/.venv/bin/python
[[ -x $PYTHON ]] || skip "there is no $TERN_SOURCE/.venv (deploy/setup.sh makes it)"
export TERN_LIBRARY=$TERN_BUILD/client/libtern.so
[[ -f $TERN_LIBRARY ]] || skip "no shared library in this build"

limit=300
[ "${TERN_FULL:-0}" = 1 ] && limit=100000000

# blocks TRACE L PAGES: with a daemon of its own
blocks() {
    local memory=$(($3 / 4096 + 8)) # 256 bytes a page
    cat >"$DIR/blocks.yaml" <<YAML
page_bytes_min: 256
limits: {groups: 1, token_blocks: $((memory * 4096 + 131072))}
tenants:
  - {name: t, socket: $DIR/blocks.sock, memory: ${memory}M}
admin: {socket: $DIR/blocks.admin}
YAML
    "$TERND" --config "$DIR/blocks.yaml" >"$DIR/blocks.out" 2>&1 &
    PIDS[blocks]=$!
    ready "${PIDS[blocks]}" "$DIR/blocks.out"
    PYTHONPATH=$TERN_SOURCE/client/python PYTHONDONTWRITEBYTECODE=1 "$PYTHON" "$HERE/blocks_trace.py" "$DIR/blocks.sock" \
        "$traces/$1.jsonl" "$2" "$limit" "$3" | tr -d ' ' >"$DIR/json" || fail "blocks_trace.py $*"
    kill "${PIDS[blocks]}"
    wait "${PIDS[blocks]}" || fail "the daemon ended with $?"
    unset "PIDS[blocks]"
    is wrong_pages 0 not_stored 0 lost 0
    hits=$(($(field matched_tokens) / $2))
}

# sessions TRACE L PROFILE ARGS...: one request at a time
sessions() {
    replay --trace "$traces/$1.jsonl" --limit "$limit" --profile "$3" --page-bytes 512 --concurrency 1 "${@:4}"
}

# equal TRACE L PROFILE: with room for everything
equal() {
    local matched pages tokens
    read -r matched pages tokens < <(python3 "$HERE/trace_oracle.py" "$traces/$1.jsonl" "$2" "$limit")
    blocks "$1" "$2" $((pages - matched / $2 + 64))
    is matched_tokens "$matched" prompt_pages "$pages" prompt_tokens "$tokens"
    sessions "$@"
    is matched_tokens "$matched" prompt_pages "$pages" prompt_tokens "$tokens"
    echo "  $1, pages of $2 tokens: $hits hits of $pages, as sessions have them"
}

equal agentic 64 tiny
equal conversation 64 tiny
equal agentic 256 tiny-256
equal conversation 256 tiny-256
[ "${TERN_FULL:-0}" = 1 ] && limit=2000 # pages of 16 tokens take too much memory for all requests
equal agentic 16 tiny-16
equal conversation 16 tiny-16

# tight TRACE PAGES PERCENT: pools too small; blocks find at least PERCENT of what sessions find. A session keeps its prefix
# until it ends, and others are evicted from their end first. Blocks are evicted one by one by their last use, and a put
# keeps pages for the next put.
tight() {
    local pages
    blocks "$1" 64 "$2"
    pages=$(field prompt_pages)
    sessions "$1" 64 tiny --pool-pages "$2"
    echo "  $1, $2 pages: $hits hits of $pages, and $(($(field matched_tokens) / 64)) of sessions"
    [ $((hits * 100)) -ge $(($(field matched_tokens) * $3 / 64)) ] || fail "fewer than $3 of 100 hits that sessions have"
    [ "$hits" -gt 0 ] || fail "nothing was found"
}
if [ "${TERN_FULL:-0}" = 1 ]; then
    tight agentic 13000 99
    tight agentic 7600 99
    tight agentic 4000 99
    tight conversation 32000 99
fi

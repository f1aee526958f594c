#!/usr/bin/env bash
# In one lab guest: two daemons whose memory lies on GPUs of the stand-in exchange pages. Once by RDMA from dma-bufs
# (dmabuf.c), pushed through the ring; there the source is also killed in mid-transfer. Once over plain soft-RoCE, which
# registers none of that memory, so the pages leave by TCP.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/verbs_lib.sh"
export GPU=GPU-7374616e-6469-6e00-0000-000000000000 LD_LIBRARY_PATH=$TERN_BUILD/tests/standin_memory
export SESSIONS=2 TURNS=2 MEMORY=32M
dmabuf=$TERN_BUILD/tests/rdma_dmabuf.so
because="(dma-buf: ibv_reg_dmabuf_mr: Operation not supported; "

both() { # TRANSPORT: both daemons, in a folder of their own
    DIR=$(mktemp -d /tmp/verbs-XXXXXX) TRANSPORT=$1
    daemon prefill 7701 decode "$LAB_IP:7702"
    daemon decode 7702 prefill "$LAB_IP:7701"
}

replay() {
    "$TERN_BIN/tern-replay" --prefill "$DIR/prefill/default.sock,$DIR/prefill/admin.sock" \
        --decode "$DIR/decode/default.sock,$DIR/decode/admin.sock" --profile tiny-state --sessions 2 --turns 2 \
        --json >"$DIR/replay.json" 2>"$DIR/replay.err" || fail "tern-replay: $(cat "$DIR/replay.json" "$DIR/replay.err")"
    figures "$DIR/replay.json" requests transferred_pages wrong_bytes failed_requests leaked_pages
}

doctor() { # NODE WORDS
    ctl "$1" doctor | grep -F "$2" || fail "doctor: $(ctl "$1" doctor)"
}

no_windows() { # NODE
    [[ $(told "$1" data verbs windows_open) == 0 ]]
}

# by_ring NODE: as many bytes went through its ring as arrived as pages
by_ring() {
    local ring all
    ring=$(told "$1" data verbs ring_bytes_in) all=$(told "$1" data payload_bytes_in)
    echo "$1: bytes through the ring: $ring of $all"
    [[ $ring -gt 0 && $ring == "$all" ]] || fail "status: $(ctl "$1" status --json)"
}

in_pieces() {
    LD_PRELOAD=$dmabuf bash "$here/verbs_replay.sh"
}

pushes() {
    export LD_PRELOAD=$dmabuf
    both verbs
    wait_for 120 "a path" goes_by decode verbs
    doctor decode "registered with rxe0 as dma-buf; ring of 33,554,432 bytes of the host's memory for pages that peers push"
    replay
    all_by_verbs decode
    by_ring decode
    no_windows decode || fail "a window is left open"
    dies
    stop_daemons
    echo "verbs_gpu: pushes: ok"
}

in_the_middle() {
    [[ $(<"$DIR/fetch") == *"in the middle"* ]]
}

# The source dies while it pushes: no window stays open, no page waits, and a later fetch is complete.
dies() {
    local pool=(--profile tiny --page-bytes 16384 --pool-pages 1100 --in-flight 12 --prefixes 24 --chunks 40 --device "$GPU") fetch
    half prefill commit "${pool[@]}" || fail "commit"
    half decode fetch "${pool[@]}" --peer prefill --may-fail --tell-bytes 1000000 >"$DIR/fetch" 2>&1 &
    fetch=$!
    wait_for 60 "the middle" in_the_middle
    kill -9 "${PIDS[prefill]}"
    wait "${PIDS[prefill]}" 2>/dev/null
    wait "$fetch" || fail "the fetches: $(cat "$DIR/fetch")"
    wait_for 60 "windows that close" no_windows decode
    cat "$DIR/fetch"
    grep -q "wrong_bytes=0" "$DIR/fetch" && grep -q "that ended so.*lost" "$DIR/fetch" || fail "nothing was lost"
    ctl decode evict >/dev/null || fail "evict"
    : >"$DIR/prefill/log"
    daemon prefill 7701 decode "$LAB_IP:7702"
    wait_for 120 "a path" goes_by decode verbs
    half prefill commit "${pool[@]}" || fail "commit"
    half decode fetch "${pool[@]}" --peer prefill --tries 20 || fail "fetch" # a path is lost when the machine stands still
    no_windows decode || fail "a window is left open"
}

unregistered() {
    both auto
    wait_for 120 "TCP in place of RDMA" goes_by decode tcp
    doctor decode "not registered with rxe0 $because"
    doctor decode "; ring of 33,554,432 bytes of the host's memory for pages that peers push"
    grep -F "way=no reason=\"dma-buf: ibv_reg_dmabuf_mr" "$DIR/decode/log" || fail "the log"
    ctl decode peers --json | grep -F "the source has not registered the tenant's memory" || fail "peers: $(ctl decode peers)"
    replay
    [[ $(told decode data verbs pages_in) == 0 ]] || fail "status: $(ctl decode status --json)"
    stop_daemons
    echo "verbs_gpu: unregistered: ok"
}

in_pieces && (pushes) && (unregistered)

#!/usr/bin/env bash
# In one lab guest: two daemons whose memory lies on GPUs of the stand-in, and pages between them. By RDMA from dma-bufs
# (dmabuf.c), pushed through the ring. By RDMA over soft-RoCE as it is, which registers none of that memory, so that rings
# carry the pages at both ends; there the source is killed in mid-transfer, too.
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

# by_ring NODE DIRECTION: as many bytes went through its ring as came as pages
by_ring() {
    local ring all
    ring=$(told "$1" data verbs "ring_bytes_$2") all=$(told decode data payload_bytes_in)
    echo "$1: bytes through the ring, $2: $ring of $all"
    [[ $ring -gt 0 && $ring == "$all" ]] || fail "status: $(ctl "$1" status --json)"
}

in_pieces() {
    LD_PRELOAD=$dmabuf bash "$here/verbs_replay.sh" --rdma-mr-bytes 8M
}

pushes() {
    export LD_PRELOAD=$dmabuf
    both verbs
    wait_for 120 "a path" goes_by decode verbs
    doctor decode "registered with rxe0 as dma-buf; ring of 67,108,864 bytes of the host's memory for what peers push"
    replay
    all_by_verbs decode
    by_ring decode in
    no_windows decode || fail "a window is left open"
    [[ $(told prefill data verbs ring_bytes_out) == 0 ]] || fail "the source bounced what its device can read"
    stop_daemons
    echo "verbs_gpu: pushes: ok"
}

in_the_middle() {
    [[ $(<"$DIR/fetch") == *"in the middle"* ]]
}

# The source dies while it pushes: no window is left, no page waits, and what is fetched then is whole.
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
    half decode fetch "${pool[@]}" --peer prefill --tries 20 || fail "fetch" # a path is lost where a machine stands still
    no_windows decode || fail "a window is left open"
}

bounces() {
    both verbs
    wait_for 120 "a path" goes_by decode verbs
    doctor decode "registered with rxe0 as bounce $because"
    doctor decode "; ring of 67,108,864 bytes of the host's memory for all of its pages"
    grep -F "way=bounce reason=\"dma-buf: ibv_reg_dmabuf_mr" "$DIR/decode/log" || fail "the log"
    replay
    all_by_verbs decode
    by_ring decode in
    by_ring prefill out
    no_windows decode || fail "a window is left open"
    dies
    stop_daemons
    echo "verbs_gpu: bounces: ok"
}

in_pieces && (pushes) && (bounces)

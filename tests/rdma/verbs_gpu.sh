#!/usr/bin/env bash
# In one lab guest: two daemons whose memory lies on GPUs of the stand-in, and tern-replay between them, by RDMA as
# dma-bufs (dmabuf.c). Then soft-RoCE as it is, which registers none of it: the tenant's pages go by TCP. So they do where
# the peer gives no key to all of its memory, and with transport verbs they do not go at all.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export GPU=GPU-7374616e-6469-6e00-0000-000000000000 LD_LIBRARY_PATH=$TERN_BUILD/tests/standin_memory
export SESSIONS=2 TURNS=2 MEMORY=32M STANDIN_CUDA_LACKS=118 # each page is behind a flush

by_dmabuf() {
    WIDE_KEYS=1 LD_PRELOAD=$TERN_BUILD/tests/rdma_dmabuf.so bash "$here/verbs_replay.sh" --rdma-mr-bytes 8M
}

by_tcp() {
    . "$here/verbs_lib.sh"
    TRANSPORT=auto
    daemon prefill 7701 decode "$LAB_IP:7702"
    daemon decode 7702 prefill "$LAB_IP:7701"
    wait_for 60 "the link" goes_by decode tcp
    ctl decode doctor | grep -F "not registered with rxe0 (dma-buf: ibv_reg_dmabuf_mr: Operation not supported; " ||
        fail "doctor: $(ctl decode doctor)"
    ctl decode status | grep -F "1 of 1 are not registered for RDMA" || fail "status: $(ctl decode status)"
    "$TERN_BIN/tern-replay" --prefill "$DIR/prefill/default.sock,$DIR/prefill/admin.sock" \
        --decode "$DIR/decode/default.sock,$DIR/decode/admin.sock" --profile tiny-state --sessions 1 --turns 2 \
        --json >"$DIR/replay.json" 2>"$DIR/replay.err" || fail "tern-replay: $(cat "$DIR/replay.json" "$DIR/replay.err")"
    figures "$DIR/replay.json" transferred_pages wrong_bytes
    [[ $(told decode data verbs pages_in) == 0 ]] || fail "pages came by RDMA"
    stop_daemons
    echo "verbs_gpu: by tcp: ok"
}

reason() { # NODE: of the way of its one peer's pages
    ctl "$1" peers --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["peers"][0]["transport_reason"])'
}

# without_keys TRANSPORT WAY: what becomes of it
without_keys() {
    . "$here/verbs_lib.sh"
    DIR=$(mktemp -d /tmp/verbs-XXXXXX) TRANSPORT=$1
    local want="set rdma.wide_keys there; no push: memory of GPUs takes no memory windows"
    export LD_PRELOAD=$TERN_BUILD/tests/rdma_dmabuf.so
    daemon prefill 7701 decode "$LAB_IP:7702"
    daemon decode 7702 prefill "$LAB_IP:7701"
    wait_for 60 "a refusal" grep -q "event=transport .* reason=.*$want" "$DIR/decode/log"
    goes_by decode "$2" || fail "transport: $(ctl decode peers)"
    [[ $(reason decode) == *"$want" ]] || fail "the reason: $(reason decode)"
    ctl decode doctor | grep -F "only from peers with rdma.wide_keys: true" || fail "doctor: $(ctl decode doctor)"
    stop_daemons
    echo "verbs_gpu: without keys, $1: $2: ok"
}

by_dmabuf && by_tcp && (without_keys auto tcp) && (without_keys verbs none)

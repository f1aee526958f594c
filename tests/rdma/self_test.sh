#!/usr/bin/env bash
# In one lab guest: the results of a daemon's self-test at start over soft-RoCE. Set-ups: memory of the host; memory of the
# stand-in's GPUs as dma-bufs (dmabuf.c) with their ring; the ring alone, as plain soft-RoCE has it. With a device that holds
# copies of a GPU's memory the pair must fail, and the daemon and its doctor must report it.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/verbs_lib.sh"
export LD_LIBRARY_PATH=$TERN_BUILD/tests/standin_memory
dmabuf=$TERN_BUILD/tests/rdma_dmabuf.so
gpus=GPU-7374616e-6469-6e00-0000-000000000000+GPU-7374616e-6469-6e00-0000-000000000001
MEMORY=4M

# finds NAME REGISTERED/RESULT/BYTES...: what an idle daemon reports for each row of memory
finds() {
    local name=$1
    shift
    DIR=$(mktemp -d /tmp/self-test-XXXXXX)
    daemon lone 7701 nobody "$LAB_IP:7999"
    ctl lone doctor | grep -F "self-test of " || fail "doctor: $(ctl lone doctor)"
    ctl lone doctor --json >"$DIR/doctor"
    python3 - "$DIR/doctor" "$@" <<'PY' || fail "$name: $(cat "$DIR/doctor")"
import json, sys
rows = json.load(open(sys.argv[1]))["rdma"]["memory"]
want = [row.split("/") for row in sys.argv[2:]]
got = [[r["registered"], r["self_test"]["result"], str(r["self_test"]["bytes"])] for r in rows]
assert got == want, got
assert all(0 < r["self_test"]["us"] < 15e6 and r["self_test"]["age_ms"] < 600e3 for r in rows)
assert all((r["self_test"]["result"] == "passed") == (r["self_test"]["reason"] == "") for r in rows)
PY
    grep -E "event=rdma_self_test device=rxe0 result=passed pairs=[0-9]+ " "$DIR/lone/log" || fail "$name: the log"
    stop_daemons
    unset "PIDS[lone]"
    echo "self_test: $name: ok"
}

finds "memory of the host" memory/passed/8192
export GPU=$gpus TENANT=regions=2
finds "the ring" no/passed/4096 no/passed/4096
export LD_PRELOAD=$dmabuf
finds "dma-bufs" dma-buf/passed/8192 dma-buf/passed/8192
export RDMA_DMABUF_STALE=1
finds "stale" no/failed/4096 no/passed/4096
grep -E "level=warn event=rdma_self_test .* result=failed reason=.RDMA write from the tested memory: byte [0-9]+ of 4096 is 0x00 in place of 0x" "$DIR/lone/log" ||
    fail "the log"
grep -F "way=no reason=\"dma-buf: self-test: RDMA write from the tested memory: byte " "$DIR/lone/log" || fail "the log"
echo "self_test: ok"

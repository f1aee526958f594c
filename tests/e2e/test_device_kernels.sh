#!/usr/bin/env bash
# Kernels on GPUs of the stand-in, under two daemons (TERND and LD_LIBRARY_PATH of the test) that exchange pages and
# keep them in host memory: with kernels no page is hashed on the host, and without them all are. Both cases are
# reported at the daemon's start, in its status and by the doctor; and a kernel fails under the daemon.
source "$(dirname "${BASH_SOURCE[0]}")/replay_lib.sh"
needs python3 "to read figures"
export LD_LIBRARY_PATH=$TERN_BUILD/tests/standin_memory
GPU=GPU-7374616e-6469-6e00-0000-000000000000

# start NAME PEER: on two GPUs, also with a tenant of the host; decode fetches from prefill
PORT=1
start() {
    ternd_run "$1" --tenant "name=a,socket=$DIR/$1/a.sock,memory=48M,regions=2,host_memory=48M,device_memory=true,\
devices=$GPU+${GPU%0}1" --tenant "name=near,socket=$DIR/$1/near.sock,memory=16M" --listen 127.0.0.1:0 \
        --page_bytes_min 512 --insecure_peers --peer "name=$2,address=127.0.0.1:$PORT,tenants=a"
    PORT=$(sed -n 's/.*event=ready.* control_port=\([0-9]*\).*/\1/p' "$DIR/$1/log")
}

ask() { # NAME COMMAND...: runs ternctl
    TERN_ADMIN_SOCKET=$DIR/$1/admin.sock "$CTL" "${@:2}"
}

# figures WAY OTHER: both daemons computed checksums by WAY alone
figures() {
    for name in prefill decode; do
        json "$(ask $name status --json)" "j['memory']['device_checksums'] == '$1' and \
            j['memory']['checksums_by_$1'] > 100 and j['memory']['checksums_by_$2'] == 0 and j['memory']['devices_lost'] == 0"
    done
}

play() {
    "$TERN_BIN/tern-replay" --prefill "$DIR/prefill/a.sock" --decode "$DIR/decode/a.sock" --sessions 6 --turns 4 \
        --ranks 2:2 --profile "$@" --json >"$DIR/json" 2>"$DIR/err" || fail "tern-replay --profile $*: $(cat "$DIR/err")"
    is wrong_bytes 0 failed_requests 0 leaked_pages 0
    [ "$(field transferred_pages)" -gt 0 ] || fail "nothing was transferred"
}

end() {
    for name in "${!PIDS[@]}"; do
        kill "${PIDS[$name]}"
        wait "${PIDS[$name]}" || fail "$name ended with status $?"
        unset "PIDS[$name]"
    done
}

start prefill decode
start decode prefill
[ "$(grep -c "event=device_kernels device=$GPU way=kernels$" "$DIR/decode/log")" = 1 ] || fail "it does not say its way"
play tiny
play hybrid
figures kernels copies
[ "$(ask prefill doctor | grep -c "^GPU ${GPU%0}[01]: its kernels compute checksums and pack rows$")" = 2 ] || fail "doctor"
[ "$(ask prefill doctor | grep -c '^  50,331,648 bytes for pools, 3,145,728 bytes for kernels; NUMA node not known; MPS on$')" = 2 ] ||
    fail "doctor: $(ask prefill doctor)"
json "$(ask prefill doctor --json)" "[(g['mps'], g['numa_node'], g['pool_bytes']) for g in j['gpus']] == [(True, None, 48 << 20)] * 2"
end

# Engines that bring the checksums of their commits, if this build has kernels for them: the daemon
# of the committing engine computes none.
if [ -f "$TERN_BUILD/gen/kernels/kernels.fatbin" ]; then
    start prefill decode
    start decode prefill
    for profile in tiny hybrid tiny-state; do
        play "$profile" --checksums
    done
    json "$(ask prefill status --json)" "j['memory']['checksums_by_engine'] > 100 and \
        j['memory']['checksums_by_kernels'] == 0 and j['memory']['checksums_by_copies'] == 0"
    end
fi

reason="cuModuleLoadData: CUDA_ERROR_NO_BINARY_FOR_GPU"
export STANDIN_CUDA_KERNELS=0
start prefill decode
start decode prefill
grep -q "level=warn.*event=device_kernels device=$GPU way=copies reason=.*$reason" "$DIR/decode/log" ||
    fail "no reason: $(grep device_kernels "$DIR/decode/log")"
play tiny
figures copies kernels
ask prefill doctor | grep -qF "GPU $GPU: checksums by the CPU, on copies of pages, and row by row ($reason)" || fail "doctor"
end
unset STANDIN_CUDA_KERNELS

# The daemon of this build, which may have no kernels.
TERND=$TERN_BIN/ternd
start prefill decode
if grep -q '^TERN_KERNELS:[A-Z]*=OFF' "$TERN_BUILD/CMakeCache.txt"; then
    grep -q "way=copies reason=.*this build has no kernels" "$DIR/prefill/log" || fail "it has kernels"
fi
ask prefill doctor | grep -qE "^GPU $GPU: (its kernels compute checksums and pack rows|.*\(this build has no kernels: .*\))$" || fail "doctor"
end
echo "all passed"

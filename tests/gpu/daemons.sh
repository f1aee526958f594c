#!/usr/bin/env bash
# Daemons whose memory lies on a real GPU, the first one that nvidia-smi lists: two that exchange pages and keep
# them in host memory, one that is its own peer, and one that is killed and started again; and an engine in PyTorch,
# if python3 has it. Every byte is compared. tests/e2e/test_device*.sh do the same, and more, with the stand-in.
# Exit status 77: no GPU.
source "$(dirname "${BASH_SOURCE[0]}")/../e2e/replay_lib.sh"
GPU=$(nvidia-smi -L 2>/dev/null | grep -o -m 1 'GPU-[0-9a-f-]*') || skip "nvidia-smi shows no GPU"
needs python3 "to read figures"
export TERN_DEVICE_MEMORY=$GPU

# start NAME PEER PAGE_BYTES MORE: starts a daemon; decode, the second one, asks prefill for pages
PORT=1
start() {
    ternd_run "$1" --tenant "name=a,socket=$DIR/$1/a.sock,device_memory=true,devices=$GPU,$4" --listen 127.0.0.1:0 \
        --page_bytes_min "$3" --insecure_peers --peer "name=$2,address=127.0.0.1:$PORT,tenants=a"
    PORT=$(sed -n 's/.*event=ready.* control_port=\([0-9]*\).*/\1/p' "$DIR/$1/log")
}
memory_of() { TERN_ADMIN_SOCKET=$DIR/$1/admin.sock "$CTL" status --json; }

echo "$GPU: replays of two daemons"
replay --sessions 20 --turns 6
[ "$(field transferred_pages)" -gt 0 ] || fail "nothing was transferred"
replay --sessions 6 --turns 4 --page-bytes 655360
replay --sessions 10 --turns 6 --profile hybrid --corrupt 20
is corrupt_detected 20
replay --sessions 20 --turns 8 --pool-pages 300 --host-pages 3000 --concurrency 2
[ "$(field host_hit_tokens)" -gt 0 ] || fail "nothing came back from the host tier"
for profile in tiny hybrid tiny-state; do
    replay --sessions 6 --turns 4 --profile $profile --checksums
done
echo "tern-replay --follow"
"$TERN_BIN/tern-replay" --follow --quick --json >"$DIR/json" || fail "pages of GPUs that are followed"
is wrong_bytes 0

echo "a daemon that is its own peer"
own_peer within ", device_memory: true, devices: $GPU" "insecure_peers: true"
played "${SIDES[@]}" --sessions 6 --turns 4
json "$(own_asked within status --json)" "(m := j['memory'])['moved_bytes_within'] > 0 and m['devices_lost'] == 0"
own_ends within

echo "an engine in PyTorch"
start prefill decode 512 memory=256M
start decode prefill 512 memory=256M
grep -q "event=device_kernels device=$GPU way=kernels" "$DIR/decode/log" || fail "the daemon runs no kernels"
library=$TERN_BUILD/client/libtern.so.0.2
if python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    [[ ! -e $library ]] || export TERN_LIBRARY=$library
    PYTHONPATH=$TERN_SOURCE/client/python python3 "$HERE/../gpu/engine.py" "$DIR/prefill/a.sock" "$DIR/decode/a.sock" prefill ||
        fail "the engine in PyTorch"
    json "$(memory_of prefill)" "(m := j['memory'])['checksums_by_engine'] > 0 and m['checksums_by_kernels'] > 0 and \
        m['checksums_by_copies'] == 0 and m['devices_lost'] == 0"
else
    echo "not run: python3 has no torch that sees a GPU"
fi
for name in prefill decode; do
    kill "${PIDS[$name]}"
    wait "${PIDS[$name]}" || fail "$name ended with status $?"
    unset "PIDS[$name]"
done

# Each daemon gets 60 % of the free memory, so the next one can start only when the driver has reclaimed the killed one's.
free=$(nvidia-smi -i "$GPU" --query-gpu=memory.free --format=csv,noheader,nounits)
for round in killed again; do
    began=${EPOCHREALTIME/./}
    start $round none 64K "memory=$((free * 6 / 10))M"
    echo "a daemon of $((free * 6 / 10)) MiB of the GPU was ready in $(((${EPOCHREALTIME/./} - began) / 1000)) ms"
    kill -9 "${PIDS[$round]}"
    status=0
    wait "${PIDS[$round]}" 2>/dev/null || status=$?
    [[ $status == 137 ]] || fail "the daemon that was killed ended with status $status"
    unset "PIDS[$round]"
done
echo "all passed"

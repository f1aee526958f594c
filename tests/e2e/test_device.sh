#!/usr/bin/env bash
# Daemons whose memory lies on GPUs of the stand-in (LD_LIBRARY_PATH of the test): the error of a start without the
# driver, with a missing GPU and with too little memory; a plan; and tern-replay, whose two daemons exchange pages of
# GPUs over TCP and keep them in host memory. Every byte is compared.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/replay_lib.sh"
standin=$TERN_BUILD/tests/standin_memory
[ -f "$standin/libcuda.so.1" ] || fail "there is no stand-in for libcuda.so.1 in this build"
export LD_LIBRARY_PATH=$standin
first=GPU-7374616e-6469-6e00-0000-000000000000 second=GPU-7374616e-6469-6e00-0000-000000000001

# starts_not ENV MEMORY DEVICES TEXT...: the daemon refuses to start, and its reason has each text.
starts_not() {
    local env=$1 memory=$2 devices=$3 text
    shift 3
    ! env "$env" timeout 60 "$TERN_BIN/ternd" --admin.socket "$DIR/refused-admin" --tenant \
        "name=a,socket=$DIR/refused,memory=$memory,devices=$devices,device_memory=true" >"$DIR/log" 2>&1 ||
        fail "it started: $env $memory $devices"
    for text; do
        grep -qF "$text" "$DIR/log" || fail "no '$text' in: $(cat "$DIR/log")"
    done
}
starts_not LD_LIBRARY_PATH=/nowhere 16M $first "libcuda.so.1 cannot be loaded" "device_memory"
starts_not X=1 16M GPU-none "there is no device GPU-none here" "$first $second"
starts_not STANDIN_CUDA_DEVICES=8 16M GPU-none "$first" "$second" "${first%0}"{2,3,4,5,6}" " "${first%0}7. Correct"
starts_not STANDIN_CUDA_DEVICES=16 16M GPU-none "${first%0}7 and 8 more (\`nvidia-smi -L\`). Correct \`devices\`"
starts_not X=1 16M index "device_memory: needs \`devices\`"
starts_not STANDIN_CUDA_MIB=32 64M $first "err=INVALID reason=\"$first: " "64 MiB were requested, 32 of 32 MiB are free" "lower tenants[].memory"
starts_not STANDIN_CUDA_LACKS=102 16M $first "virtual memory management"
starts_not STANDIN_CUDA_FAIL=cuMemExportToShareableHandle:1:801 16M $first "cuMemExportToShareableHandle"

plan=$("$TERN_BIN/ternd" --plan --tenant "name=a,socket=/a,memory=16G,devices=$first,device_memory=true")
grep -qE '^device_bytes +17179869184 ' <<<"$plan" || fail "the plan says: $plan"
grep -qE '^  pages +0$' <<<"$plan" || fail "memory of GPUs is none of the machine's: $plan"

# Registrations lock none of it; each region is reported: usually no RDMA device is here.
rdma=(--tenant "name=a,socket=$DIR/a.sock,memory=16M,regions=2,devices=$first+$second,device_memory=true" --insecure_peers
    --peer name=b,address=127.0.0.1:1,tenants=a,transport=auto --admin.socket "$DIR/rdma-admin")
plan=$("$TERN_BIN/ternd" --plan "${rdma[@]}")
grep -qE "^pinned_bytes +$(((2 * 32 << 20) + 8192)) " <<<"$plan" || fail "the plan says: $plan"
grep -qE '^rails +2 ' <<<"$plan" || fail "the plan says: $plan"
: >"$DIR/rdma.log"
"$TERN_BIN/ternd" "${rdma[@]}" >>"$DIR/rdma.log" 2>&1 &
pid=$!
for ((i = 0; i < 600; i++)); do
    grep -q event=ready "$DIR/rdma.log" && break
    sleep 0.1
done
doctor=$(TERN_ADMIN_SOCKET=$DIR/rdma-admin "$TERN_BIN/ternctl" doctor) || fail "doctor: $(cat "$DIR/rdma.log")"
status=$(TERN_ADMIN_SOCKET=$DIR/rdma-admin "$TERN_BIN/ternctl" status --json | python3 -c 'import json, sys; v = json.load(sys.stdin)["data"]["verbs"]; print(v["gpu_regions"] + v["gpu_regions_unregistered"])')
[ "$status" -ge 2 ] || fail "of two regions on GPUs that RDMA is asked for, $status are counted"
if ! grep -q "^RDMA: not in this build" <<<"$doctor"; then
    for want in "region 0, on $first" "region 1, on $second"; do
        grep -qE "memory of a, $want: (not )?registered with " <<<"$doctor" || fail "doctor: $doctor"
    done
    grep -qE "; registrations (would )?take (67,117,056 bytes of the host's memory, on 2 devices|33,562,624 bytes of the host's memory, on 1 device)" <<<"$doctor" || fail "doctor: $doctor"
fi
kill "$pid"
wait "$pid" || fail "the daemon ended with status $?"

export TERN_DEVICE_MEMORY=$first+$second
replay --sessions 20 --turns 6
[ "$(field transferred_pages)" -gt 0 ] || fail "nothing was transferred"
replay --sessions 6 --turns 4 --page-bytes 655360
replay --sessions 10 --turns 6 --profile tiny-state --ranks 2:2
replay --sessions 10 --turns 6 --profile hybrid --corrupt 20
is corrupt_detected 20
echo "tern-replay --follow"
"$TERN_BIN/tern-replay" --follow --quick --json >"$DIR/json" || fail "pages of GPUs that are followed"
is wrong_bytes 0
replay --sessions 20 --turns 8 --pool-pages 300 --host-pages 3000 --concurrency 2
[ "$(field host_hit_tokens)" -gt 0 ] || fail "nothing came back from the host tier"

# Pools of another sharding, row by row; that daemon has 16 regions.
export STANDIN_CUDA_DEVICES=16 STANDIN_CUDA_DELAY_US=0
for digit in 2 3 4 5 6 7 8 9 a b c d e f; do
    TERN_DEVICE_MEMORY+=+${first%0}$digit
done
for cells in "2:4 gqa" "4:1 mla"; do
    read -r ranks kind <<<"$cells"
    "$TERN_BIN/tern-replay" --reshard --ranks "$ranks" --kind "$kind" | tail -1 | tee "$DIR/json"
    grep -q 'failed 0;.*wrong_bytes 0,' "$DIR/json" || fail "resharding $cells"
done
echo "all passed"

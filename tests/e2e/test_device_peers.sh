#!/usr/bin/env bash
# Prefill on four GPUs and decode on four others of one daemon that is its own peer, GPUs of the stand-in (LD_LIBRARY_PATH
# of the test). Prefixes and tickets move from GPU to GPU by peer access; with a stand-in that denies it, or whose copies
# between GPUs are wrong, they move through host memory. Every byte is compared, and counted.
source "$(dirname "${BASH_SOURCE[0]}")/replay_lib.sh"
needs python3 "to read figures"
export LD_LIBRARY_PATH=$TERN_BUILD/tests/standin_memory STANDIN_CUDA_DEVICES=8 STANDIN_CUDA_DELAY_US=20
GPUS=()
for i in 0 1 2 3 4 5 6 7; do GPUS+=("GPU-7374616e-6469-6e00-0000-00000000000$i"); done
all=$(IFS=+; echo "${GPUS[*]}")

# counted NAME RELATION WAY OTHER...: compares the bytes moved by WAY with all that arrived; none
# moved by OTHER
counted() {
    json "$(own_asked "$1" status --json)" "(m := j['memory'])['moved_bytes_$3'] $2 j['data']['payload_bytes_in'] > 0 and \
        [m['moved_bytes_' + k] for k in '${*:4}'.split()] == [0, 0] and m['devices_lost'] == 0"
}

# case_of NAME WAY OTHER...: all bytes of both runs moved by WAY, and none by the others
case_of() {
    own_peer "$1" ", regions: 8, device_memory: true, devices: $all" "insecure_peers: true"
    export TERN_PREFILL_DEVICES TERN_DECODE_DEVICES
    TERN_PREFILL_DEVICES=$(IFS=+; echo "${GPUS[*]:0:4}") TERN_DECODE_DEVICES=$(IFS=+; echo "${GPUS[*]:4:4}")
    played "${SIDES[@]}" --sessions 6 --turns 4 --ranks 4:4
    [ "$(field transferred_pages)" -gt 0 ] || fail "nothing has moved"
    # Pages of several pieces, prefill on one GPU and decode on another one.
    TERN_PREFILL_DEVICES=${GPUS[5]} TERN_DECODE_DEVICES=${GPUS[2]}
    played "${SIDES[@]}" --sessions 2 --turns 2 --page-bytes 655360
    counted "$1" == "${@:2}"
    played "${SIDES[@]}" --tickets --profile hybrid --page-bytes 512 --sessions 8 --turns 4 --aborts 0.3 --concurrency 4
    is lost_tickets 0
    counted "$1" '>=' "${@:2}" # bytes copied for a fetch that was given up have arrived nowhere
    json "$(own_asked "$1" doctor --json)" "[[p['peer_access'] for p in g['peers']] for g in j['gpus']] == [[$([ "$2" = by_peer ] && echo True || echo False)] * 7] * 8"
    own_ends "$1"
}

case_of peers by_peer staged within
! grep "event=device_peers" "$DIR/peers.out" || fail "it has peers"
STANDIN_CUDA_NO_PEERS=all case_of denied staged by_peer within
[ "$(grep -c 'level=warn.*event=device_peers .* way=staged reason="cuDeviceCanAccessPeer: no"' "$DIR/denied.out")" = 7 ] ||
    fail "no reason: $(cat "$DIR/denied.out")"
STANDIN_CUDA_SPOILS_PEERS=all case_of spoilt staged by_peer within
grep -q 'event=device_peers .*reason="a try: other bytes arrived' "$DIR/spoilt.out" || fail "no reason: $(cat "$DIR/spoilt.out")"
echo "all passed"

#!/usr/bin/env bash
# deploy/ternd-gpus.yaml, the sample for a host with 8 GPUs. docs/operations.md shows its plan (with TERN_WRITE_DOCS in the
# environment it is written there). With less memory, on the GPUs of the stand-in (LD_LIBRARY_PATH of the test), the daemon
# starts with TLS and is its own peer: engines of 4 and 4 GPUs hand over, and every byte is compared.
source "$(dirname "${BASH_SOURCE[0]}")/replay_lib.sh"
needs python3 "to read figures"
needs openssl "to make certificates"
sample=$TERN_SOURCE/deploy/ternd-gpus.yaml

"$TERN_BIN/ternd" --config "$sample" --plan | grep -v '^machine_bytes' >"$DIR/plan" || fail "--plan"
grep -q '^rails  *8 ' "$DIR/plan" || fail "the plan has not 8 rails: $(cat "$DIR/plan")"
if [[ $LIBRARIES == *libssl* && $LIBRARIES == *libibverbs* && -z $SANITIZE ]]; then
    document=$TERN_SOURCE/docs/operations.md
    { sed '/^\$ ternd --config .*ternd-gpus.yaml --plan$/q' "$document"; cat "$DIR/plan"
        sed '1,/^\$ ternd --config .*ternd-gpus.yaml --plan$/d' "$document" | sed -n '/^```/,$p'; } >"$DIR/anew"
    [[ -z ${TERN_WRITE_DOCS:-} ]] || cp "$DIR/anew" "$document"
    diff "$document" "$DIR/anew" || fail "docs/operations.md: < shown, > planned: TERN_WRITE_DOCS=1 with this test writes it anew"
fi
[[ $LIBRARIES == *libssl* ]] || skip "the plan is right; this build has no TLS for the rest"

bash "$TERN_SOURCE/deploy/make-certs.sh" "$DIR/certs" host-1
free_ports port
sed -e "s#/etc/tern#$DIR/certs#; s#/run/tern#$DIR#; s/GPU-0000000\([0-7]\)-0000-0000-0000-000000000000/GPU-7374616e-6469-6e00-0000-00000000000\1/" \
    -e "s/10\.0\.0\.1:7001/127.0.0.1:$port/; s/10\.0\.0\.[23]:7001/127.0.0.1:1/; s/^data_port: 7002/data_port: 0/" \
    -e 's/memory: 40G /memory: 32M /; s/host_memory: 64G /host_memory: 8M /; s/^page_bytes_min: 1M/page_bytes_min: 16K/' "$sample" >"$DIR/config.yaml"
export LD_LIBRARY_PATH=$TERN_BUILD/tests/standin_memory STANDIN_CUDA_DEVICES=8 TERN_ADMIN_SOCKET=$DIR/admin.sock
"$TERND" --config "$DIR/config.yaml" 2>"$DIR/log" &
PIDS[host-1]=$!
ready "${PIDS[host-1]}" "$DIR/log"
linked() { [[ $("$CTL" peers --json | value "[(p['state'], p['transport']) for p in j['peers'] if p['peer'] == 'host-1']") == "[('up', 'local')]" ]]; }
wait_for "the link to itself" linked
json "$("$CTL" doctor --json)" "len(j['gpus']) == 8 and all(p['peer_access'] for g in j['gpus'] for p in g['peers'])"

gpus=("" "")
for i in 0 1 2 3 4 5 6 7; do gpus[i / 4]+="${gpus[i / 4]:++}GPU-7374616e-6469-6e00-0000-00000000000$i"; done
export TERN_PREFILL_DEVICES=${gpus[0]} TERN_DECODE_DEVICES=${gpus[1]}
played --prefill "$DIR/chat.sock,$DIR/admin.sock" --decode "$DIR/chat.sock,$DIR/admin.sock" --peer host-1 --sessions 4 --turns 3 --ranks 4:4 --page-bytes 65536
[ "$(field transferred_pages)" -gt 0 ] || fail "nothing has moved"
json "$("$CTL" status --json)" "j['memory']['moved_bytes_by_peer'] == j['data']['payload_bytes_in'] > 0 and j['memory']['devices_lost'] == 0"
kill "${PIDS[host-1]}"
wait "${PIDS[host-1]}" || fail "the daemon ended with $?: $(cat "$DIR/log")"
unset "PIDS[host-1]"
echo "device sample: ok"

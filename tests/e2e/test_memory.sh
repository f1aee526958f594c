#!/usr/bin/env bash
# The memory that ternd reports by part (memory_bytes) must agree with the address space of a real
# daemon of that configuration, whichever part is enlarged; and a larger part never shrinks another.
source "$(dirname "$0")/with_ternd.sh"
[[ -z $SANITIZE ]] || skip "a sanitizer brings memory of its own"

export MALLOC_ARENA_MAX=1 # an arena of a thread's own would be there or not, by chance

TRUST="insecure_peers: true"
# look EXTRA-YAML [FLAG...]: sets BYTES, the parts as lines "NAME BYTES", and SIZE, the daemon's address space
look() {
    local extra=$1
    shift
    cat >"$DIR/config.yaml" <<EOF
node: e2e
workers: 1
huge_pages: false
page_bytes_min: 64K
$TRUST
admin: {socket: $DIR/admin.sock}
$extra
EOF
    "$TERN_BIN/ternd" --config "$DIR/config.yaml" --check-config "$@" >"$DIR/out" || fail "refused"
    sed -n '/^# memory_bytes /,/^#   tape /s/^# *\([a-z_]*\)  *\([0-9]*\).*/\1 \2/p' "$DIR/out" >"$DIR/parts"
    : >"$DIR/log"
    "$TERN_BIN/ternd" --config "$DIR/config.yaml" "$@" 2>"$DIR/log" &
    TERND_PID=$!
    ready "$TERND_PID" "$DIR/log"
    SIZE=$(($(sed -n 's/^VmSize:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$TERND_PID/status") * 1024))
    BYTES=$(part memory_bytes)
    [[ $(wc -l <"$DIR/parts") == 12 ]] || fail "not twelve lines: $(cat "$DIR/parts")"
    [[ $(awk '$1 != "memory_bytes" { n += $2 } END { printf "%d", n }' "$DIR/parts") == "$BYTES" ]] || fail "the parts are not the sum"
    grep -q "event=memory memory_bytes=$BYTES pages=$(part pages) .* rdma=$(part rdma) .* machine=[0-9]" "$DIR/log" ||
        fail "the log says otherwise: $(grep event=memory "$DIR/log")"
    ternd_stop
}

part() {
    sed -n "s/^$1 //p" "$DIR/parts"
}

TENANT="tenants:
  - {name: t0, socket: $DIR/t0.sock, memory: 8M, conns_max: 64"
base() { # as look: the baseline of the next calls
    look "$@"
    cp "$DIR/parts" "$DIR/base"
    BASE_BYTES=$BYTES BASE_SIZE=$SIZE
}

# grows PART EXTRA-YAML [FLAG...]: most of the added memory is of that part, and real
grows() {
    local name=$1 more real
    shift
    look "$@"
    more=$((BYTES - BASE_BYTES)) real=$((SIZE - BASE_SIZE))
    echo "$name: said $((more >> 20)) MiB more, has $((real >> 20)) MiB more"
    [[ $more -gt $((32 << 20)) ]] || fail "$name: too little to be seen"
    [[ $((($(part "$name") - $(sed -n "s/^$name //p" "$DIR/base")) * 2)) -gt $more ]] || fail "$name: it is another part: $(cat "$DIR/parts")"
    # Threads cause no differing stacks here; malloc adds a few per cent at most.
    [[ $((real - more)) -lt $((more / 20 + (2 << 20))) && $((more - real)) -lt $((more / 20 + (2 << 20))) ]] ||
        fail "$name: said $more bytes more, has $real: $(cat "$DIR/parts")"
}

peers() { # N MORE: as many more of them
    echo peers:
    for i in $(seq "$1"); do
        echo "  - {name: p$i, address: \"127.0.0.1:1\", tenants: [t0]$2}"
    done
}

base "$TENANT}"
grows pages "$TENANT, regions: 9}" --page_bytes_min 1M
grows host_pages "$TENANT, host_memory: 64M}"
grows records "$TENANT, record_memory: 128M}"
grows core "$TENANT}
limits: {nodes: 400000, token_blocks: 400000}"
grows checksums "$TENANT}
limits: {sums_per_page: 4000}"
grows transfers "$TENANT}
limits: {data_conns_max: 1024}"
grows connections "$TENANT}
frame_body_max: 4M"
grows tape "$TENANT}
tape: {bytes: 100M}"

# The disk tier: memory for data on its way. Its records count for the core.
mkdir -p "$DIR/spill"
SPILL="spill: {dir: $DIR/spill, bytes: 64M"
STACK_KIB=$(ulimit -S -s)
ulimit -S -s 1024 # the stacks of the threads are no memory of the disk tier
base "$TENANT}
$SPILL, threads: 1}"
grows disk "$TENANT}
$SPILL, threads: 4}"
ulimit -S -s "$STACK_KIB"

# RDMA paths of each peer and tenant, with or without a device here
TENANTS=$TENANT}
for i in $(seq 15); do
    TENANTS+="
  - {name: t$i, socket: $DIR/t$i.sock, memory: 1M, conns_max: 1}"
done
LINKS="limits: {data_conns_max: 256}"
base "$TENANTS
$LINKS
$(peers 200 "")"
[[ $(part rdma) == 0 ]] || fail "nobody wants RDMA, and it takes $(part rdma)"
if [[ $LIBRARIES != *libibverbs* ]]; then
    echo "rdma: not in this build"
else
    grows rdma "$TENANTS
$LINKS
$(peers 200 ", transport: auto")"
fi

# TLS sessions of each link
if [[ $LIBRARIES != *libssl* ]]; then
    echo "tls: not in this build"
else
    base "$TENANT}
limits: {peers: 200}"
    bash "$TERN_SOURCE/deploy/make-certs.sh" "$DIR/certs" e2e >/dev/null 2>&1
    TRUST="tls: {ca: $DIR/certs/ca.pem, cert: $DIR/certs/e2e.pem, key: $DIR/certs/e2e.key}"
    grows tls "$TENANT}
limits: {peers: 200}"
fi
echo "memory: ok"

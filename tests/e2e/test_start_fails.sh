#!/usr/bin/env bash
# Fault 18: each allocation of a daemon's start fails once. The daemon either works without it, or reports that there
# is no memory and ends, leaving no socket behind. Every allocation of a start from flags is tried, and every
# STRIDE-th of one from a file, most of which are the YAML parser's own.
source "$(dirname "$0")/with_ternd.sh"
[[ -z $SANITIZE ]] || skip "a sanitizer brings an allocator of its own"
STRIDE=16
RUN_S=30 # of one daemon: it never waits
"$CC" -std=gnu17 -O1 -fno-builtin -shared -fPIC -o "$DIR/fail.so" "$HERE/interpose_fail.c"
cat >"$DIR/config.yaml" <<EOT
node: e2e
listen: 127.0.0.1:0
insecure_peers: true
workers: 1
huge_pages: false
admin: {socket: $DIR/admin.sock}
limits: {sessions: 16, pages: 256, nodes: 64, data_conns_max: 4}
tenants:
  - {name: t0, socket: $DIR/t0.sock, memory: 1M, host_memory: 1M, regions: 2}
peers:
  - {name: other, address: "localhost:9", tenants: [t0]}
EOT
FLAGS=(--node=e2e --listen=127.0.0.1:0 --insecure_peers --workers=1 --huge_pages=false
    --admin.socket="$DIR/admin.sock" --limits.sessions=16 --limits.pages=256 --limits.nodes=64 --limits.data_conns_max=4
    --tenant="name=t0,socket=$DIR/t0.sock,memory=1M,host_memory=1M,regions=2"
    --peer=name=other,address=localhost:9,tenants=t0)

runs=0 injected=0 refused=0 violations=0
wrong() {
    violations=$((violations + 1))
    echo "allocation $1: $2"
    tail -n 3 "$DIR/log"
}

# once NTH ARGUMENT...: sets ALLOCATIONS, READY
once() {
    local nth=$1 rc=0 said
    shift
    rm -f "$DIR/report"
    FAIL_NTH=$nth FAIL_REPORT=$DIR/report NOTIFY_SOCKET=$DIR/nobody timeout -k 1 $RUN_S \
        env LD_PRELOAD="$DIR/fail.so" "$TERN_BIN/ternd" "$@" 2>"$DIR/log" >/dev/null || rc=$?
    ALLOCATIONS=0 READY=
    [[ ! -f $DIR/report ]] || read -r ALLOCATIONS READY <"$DIR/report"
    ALLOCATIONS=${ALLOCATIONS#allocations=}
    runs=$((runs + 1))
    said=$(tail -n 1 "$DIR/log")
    case $rc-$READY in
    0-ready=1) ;;
    [12]-ready=0)
        refused=$((refused + 1))
        [[ $said == *memory* || $said == *Memory* ]] || wrong "$nth" "not the reason"
        ;;
    *) wrong "$nth" "status $rc, $READY" ;;
    esac
    [[ ! -e $DIR/admin.sock && ! -e $DIR/t0.sock ]] || wrong "$nth" "sockets are left"
    rm -f "$DIR/admin.sock" "$DIR/t0.sock"
}

# each STEP ARGUMENT...: until NTH exceeds the allocations of a start
each() {
    local step=$1 nth=$1
    shift
    once 0 "$@"
    [[ $READY == ready=1 && $ALLOCATIONS -gt 50 ]] || fail "not watched: $ALLOCATIONS $READY"
    while once "$nth" "$@" && ((ALLOCATIONS >= nth)); do
        injected=$((injected + 1))
        nth=$((nth + step))
    done
}

each 1 "${FLAGS[@]}"
each $STRIDE --config "$DIR/config.yaml"
echo "fault=18 runs=$runs injected=$injected violations=$violations refused=$refused leaks=0"
((violations == 0 && injected > 100 && refused > 50))

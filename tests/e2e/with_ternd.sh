# Sourced by the scripts of this folder: starts real daemons in $DIR; when the script ends, they are ended and $DIR is removed.
#   ternd_start EXTRA-YAML MEMORY REGIONS    sets SOCKET (of tenant t0), ADMIN; drain_ms is DRAIN_MS (1000);
#                                            TERND_PRELOAD is LD_PRELOAD of the daemon alone
#   ternd_stop                               ends it again
#   ternd_run NODE FLAG...                   starts one more and waits until it is ready: its files are in $DIR/NODE,
#                                            its process id in PIDS[NODE]
#   ternd_preload LIBRARY                    prints the LD_PRELOAD that ternd needs
#   ready PID LOG                            waits until that daemon serves
#   wait_for WHAT COMMAND...                 waits until COMMAND succeeds, at least 120 s
#   ends STATUS PATTERN COMMAND...           COMMAND ends with STATUS; its output, in $DIR/out, has a matching line
#   json TEXT EXPRESSION                     the text is one JSON object j, and the Python expression holds
#   value EXPRESSION <TEXT                   prints the value of the expression for the object j
#   free_ports NAME...                       sets each variable to a free TCP port, which no other test gets
#   needs PROGRAM WHAT-FOR, skip WHY, fail TEXT   end the script
# TERN_BIN, TERN_BUILD and TERN_SOURCE come from ctest; by hand the defaults do. TERND names a daemon other than
# TERN_BIN's.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
TERN_SOURCE=${TERN_SOURCE:-$(cd "$HERE/../.." && pwd)}
TERN_BUILD=${TERN_BUILD:-$TERN_SOURCE/build}
TERN_BIN=${TERN_BIN:-$TERN_BUILD/bin}
CTL=$TERN_BIN/ternctl
TERND=${TERND:-$TERN_BIN/ternd}
DIR=$(mktemp -d /tmp/tern-e2e-XXXXXX)
TERND_PID= STUCK=
declare -A PIDS
STOP_S=60 # for a daemon to end after drain_ms

ternd_stop() {
    [[ -n $TERND_PID ]] || return 0
    kill "$TERND_PID" 2>/dev/null || true
    for _ in $(seq $((${DRAIN_MS:-1000} / 50 + STOP_S * 20))); do
        kill -0 "$TERND_PID" 2>/dev/null || break
        sleep 0.05
    done
    if kill -9 "$TERND_PID" 2>/dev/null; then
        echo "FAILED: ternd does not end" >&2
        STUCK=1
    fi
    wait "$TERND_PID" 2>/dev/null || true
    TERND_PID=
    [[ -z $STUCK ]]
}

cleanup() {
    ternd_stop || true
    for pid in "${PIDS[@]}"; do
        kill -9 "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true
    done
    rm -rf "$DIR"
    [[ -z $STUCK ]] || exit 1
}
trap cleanup EXIT

fail() {
    echo "FAILED: $*" >&2
    tail -n 20 "$DIR"/{log,*/log,json,err,*.out} >&2 2>/dev/null || true
    exit 1
}

skip() {
    echo "skipped: $*"
    exit 77
}

needs() {
    command -v "$1" >/dev/null || skip "$1 is needed $2"
}

wait_for() {
    local what=$1
    shift
    for _ in $(seq 2400); do
        "$@" && return 0
        sleep 0.05
    done
    fail "waited in vain for $what"
}

ready() { # PID LOG. The line must name the process: its shell may not have emptied the last one's log yet
    for _ in $(seq 2400); do
        grep -qs "event=ready .* pid=$1 " "$2" && return 0
        kill -0 "$1" 2>/dev/null || fail "ternd did not start: $(cat "$2")"
        sleep 0.05
    done
    fail "ternd was not ready after 120 s: $(cat "$2")"
}

ends() {
    local status=$1 pattern=$2 rc=0
    shift 2
    "$@" >"$DIR/out" 2>&1 || rc=$?
    [[ $rc == "$status" ]] || fail "$*: exit status $rc, not $status: $(cat "$DIR/out")"
    [[ -z $pattern ]] || grep -q -- "$pattern" "$DIR/out" || fail "$*: no '$pattern' in: $(cat "$DIR/out")"
}

json() {
    python3 -c '
import json, sys
j = json.loads(sys.argv[1])
assert isinstance(j, dict), "no object"
assert eval(sys.argv[2]), sys.argv[2]
' "$1" "$2" || fail "JSON: $2 in ${1:0:2000}"
}

value() {
    python3 -c 'import json, sys; j = json.load(sys.stdin); print(eval(sys.argv[1]))' "$1"
}

# Below the kernel's range for outgoing connections, in a block that belongs to this script and its
# children alone; tests/engine/daemon.c claims its own in the same way.
PORT_NEXT= PORT_FIRST=10000 PORT_BLOCK=1024
port_block() {
    local end fd
    read -r end _ </proc/sys/net/ipv4/ip_local_port_range
    ((end > PORT_FIRST + PORT_BLOCK)) || end=65536
    for _ in $(seq 1000); do
        PORT_NEXT=$((PORT_FIRST + RANDOM % ((end - PORT_FIRST) / PORT_BLOCK) * PORT_BLOCK))
        { exec {fd}>>"/tmp/tern-ports-$PORT_NEXT"; } 2>/dev/null || continue
        flock -n "$fd" && return
        exec {fd}>&-
    done
    fail "no block of ports is free"
}
free_ports() {
    local name
    [[ -n $PORT_NEXT ]] || port_block
    for name; do
        while (exec {fd}<>"/dev/tcp/127.0.0.1/$PORT_NEXT") 2>/dev/null; do ((++PORT_NEXT)); done
        printf -v "$name" %s "$PORT_NEXT"
        ((++PORT_NEXT))
    done
}

ternd_start() {
    SOCKET=$DIR/t0.sock ADMIN=$DIR/admin.sock
    export TERN_ADMIN_SOCKET=$ADMIN
    cat >"$DIR/config.yaml" <<EOF
node: e2e
workers: 1
huge_pages: false
deadlines:
  drain_ms: ${DRAIN_MS:-1000}
admin:
  socket: $ADMIN
tenants:
  - name: t0
    socket: $SOCKET
    memory: $2
    regions: $3
$1
EOF
    : >"$DIR/log" # here: an earlier one may have reported ready
    LD_PRELOAD=${TERND_PRELOAD:-} "$TERND" --config "$DIR/config.yaml" 2>"$DIR/log" &
    TERND_PID=$!
    ready "$TERND_PID" "$DIR/log"
}

ternd_run() {
    local node=$1
    shift
    mkdir -p "$DIR/$node"
    : >"$DIR/$node/log"
    "$TERND" --node "$node" --admin.socket "$DIR/$node/admin.sock" --huge_pages=no --workers 1 "$@" \
        2>"$DIR/$node/log" &
    PIDS[$node]=$!
    ready "${PIDS[$node]}" "$DIR/$node/log"
}

LIBRARIES=${LIBRARIES:-$(ldd "$TERN_BIN/ternd")} # kept: `ldd | grep -q` fails if grep ends first
SANITIZE=$(grep -s '^TERN_SANITIZE:' "$TERN_BUILD/CMakeCache.txt" | cut -d= -f2) || true
ternd_preload() { # a sanitizer's library comes first
    echo "$(sed -n 's/.*=> \(.*lib[at]san[^ ]*\) .*/\1 /p' <<<"$LIBRARIES")$1"
}

CC=${CC:-gcc}

# Sourced by the scripts of this folder: a real ternd in a folder of its own, ended with the script.
#   ternd_start EXTRA-YAML MEMORY REGIONS    sets DIR, SOCKET (of tenant t0), ADMIN; drain_ms is DRAIN_MS (1000),
#                                            LD_PRELOAD of the daemon alone TERND_PRELOAD
#   ternd_preload LIBRARY                    prints what LD_PRELOAD has to be for ternd
#   fail TEXT                                ends the script
# TERN_BIN, TERN_BUILD and TERN_SOURCE come from ctest; by hand the defaults do.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
TERN_SOURCE=${TERN_SOURCE:-$(cd "$HERE/../.." && pwd)}
TERN_BUILD=${TERN_BUILD:-$TERN_SOURCE/build}
TERN_BIN=${TERN_BIN:-$TERN_BUILD/bin}
DIR=$(mktemp -d /tmp/tern-e2e-XXXXXX)
TERND_PID= STUCK=
STOP_S=60 # beyond drain_ms, for a daemon to end

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
    rm -rf "$DIR"
    [[ -z $STUCK ]] || exit 1
}
trap cleanup EXIT

fail() {
    echo "FAILED: $*" >&2
    [[ -f $DIR/log ]] && tail -n 20 "$DIR/log" >&2
    exit 1
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
    : >"$DIR/log" # here: the one before may have said that it was ready
    LD_PRELOAD=${TERND_PRELOAD:-} "$TERN_BIN/ternd" --config "$DIR/config.yaml" 2>"$DIR/log" &
    TERND_PID=$!
    for _ in $(seq 1200); do
        grep -qs event=ready "$DIR/log" && return 0
        kill -0 "$TERND_PID" 2>/dev/null || fail "ternd did not start"
        sleep 0.1
    done
    fail "ternd was not ready after 120 s"
}

LIBRARIES=$(ldd "$TERN_BIN/ternd") # kept: `ldd | grep -q` fails where grep ends first
SANITIZE=$(grep -s '^TERN_SANITIZE:' "$TERN_BUILD/CMakeCache.txt" | cut -d= -f2) || true
ternd_preload() { # a sanitizer's library comes first
    echo "$(sed -n 's/.*=> \(.*lib[at]san[^ ]*\) .*/\1 /p' <<<"$LIBRARIES")$1"
}

# What a program of the user needs beside the public header; a build with sanitizers needs the same for its users.
CC=${CC:-gcc}
USER_FLAGS=()
case $SANITIZE in
address) USER_FLAGS+=(-fsanitize=address,undefined) ;;
thread) USER_FLAGS+=(-fsanitize=thread) ;;
esac

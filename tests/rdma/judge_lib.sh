# Sourced by the tests of this folder: runs the lab and checks its output.
#   try NAME LAB-ARGUMENT...   runs lab.sh; its output in $log, its exit status in $status. Skips where it cannot run.
#   expect STATUS PATTERN...   the last run ended with STATUS and printed a line for each PATTERN
#   unexpected PATTERN...      the last run printed no line that matches
#   within SECONDS COMMAND...  waits until COMMAND succeeds; returns false after SECONDS
#   certificates NODE...       makes them in $certs
#   judge                      ends the test
#   need_build, need PROGRAM PACKAGE
log=$(mktemp)
failed=0 status=0
export TERN_BUILD=${TERN_BUILD:-$here/../../build}
export TERN_BIN=${TERN_BIN:-$TERN_BUILD/bin}
certs=$(mktemp -d)
trap 'rm -rf "$log" "$certs"' EXIT

wrong() {
    echo "FAILED: $*"
    failed=1
}

need() {
    command -v "$1" >/dev/null && return
    echo "skipped: needs $1 (package $2)"
    exit 77
}

need_build() {
    if [[ ! -x $TERN_BIN/ternd ]]; then
        echo "FAILED: no ternd in $TERN_BIN"
        exit 1
    fi
}

try() {
    local start=$SECONDS
    echo "-- $1"
    shift
    status=0
    "$here/lab.sh" "$@" >"$log" 2>&1 || status=$?
    cat "$log"
    echo "   $((SECONDS - start)) s"
    if [[ $status -eq 77 ]]; then
        tail -n 1 "$log"
        exit 77
    fi
}

expect() {
    local want=$1 pattern
    shift
    [[ $status -eq $want ]] || wrong "exit status $status, expected $want"
    for pattern in "$@"; do
        grep -q -- "$pattern" "$log" || wrong "not printed: $pattern"
    done
}

unexpected() {
    local pattern
    for pattern in "$@"; do
        grep -q -- "$pattern" "$log" && wrong "printed: $pattern"
    done
}

within() {
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < until)) || return 1
        sleep 0.1
    done
}

certificates() {
    bash "$here/../../deploy/make-certs.sh" "$certs" "$@" || exit 1
}

judge() {
    [[ $failed -eq 0 ]] && echo "ok: all in $SECONDS s"
    exit "$failed"
}

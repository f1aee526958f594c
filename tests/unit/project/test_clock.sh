#!/usr/bin/env bash
# Fault 31: a wall clock that jumps changes nothing, because the daemon measures by CLOCK_MONOTONIC
# alone. The wall clock is read for people (a line of the log, a crash's last line), for the dates
# of certificates, and by tern-agent, which reports when the daemon started.
set -euo pipefail
source_dir=$(realpath "${TERN_SOURCE:-$(dirname "$0")/../../..}")
allowed='/(log|crash|tls)\.c$|/client/agent/agent\.c$'

readers() { # TREE: the sources that read the wall clock
    grep -rlE --include='*.c' --include='*.h' '\bCLOCK_(REALTIME|TAI)\b|\b(gettimeofday|ftime|time)\(|\btimespec_get\b' \
        "$1/daemon" "$1/client" "$1/proto" | sort
}

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir -p "$copy/daemon/seam" "$copy/client" "$copy/proto"
echo 'clock_gettime(CLOCK_MONOTONIC, &t); x = do_time(w); /* in time (at once) */' >"$copy/daemon/seam/a.c"
echo 'clock_gettime(CLOCK_REALTIME, &t);' >"$copy/daemon/seam/b.c"
echo 'now = time(NULL);' >"$copy/client/c.c"
[[ $(readers "$copy" | tr '\n' ' ') == "$copy/client/c.c $copy/daemon/seam/b.c " ]] ||
    { echo "self-test: $(readers "$copy")"; exit 1; }

found=$(readers "$source_dir")
grep -qE "$allowed" <<<"$found" || { echo "not even the log reads the wall clock: were the sources found?"; exit 1; }
if grep -vE "$allowed" <<<"$found"; then
    echo "FAILED: these read the wall clock; durations and deadlines are measured by CLOCK_MONOTONIC"
    exit 1
fi
echo "all passed"

#!/usr/bin/env bash
# Fault 19: after "ready" the daemon's owner thread allocates nothing, while a replay runs, while clients
# misbehave and while some subscribe. Real daemons under interpose_alloc.c; prints the fault line. Exit 77: cannot be done here.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${TERN_BIN:-$here/../../build/bin}
build=${TERN_BUILD:-$here/../../build}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/reports" "$dir/bin"

if [[ $(ldd "$bin/ternd") == *lib[at]san* ]]; then
    echo "skipped: a sanitizer brings an allocator of its own"
    exit 77
fi
"${CC:-cc}" -std=gnu17 -O1 -g -fno-builtin -shared -fPIC -o "$dir/interpose.so" "$here/interpose_alloc.c"
cat >"$dir/bin/ternd" <<SH
#!/bin/sh
LD_PRELOAD=$dir/interpose.so INTERPOSE_REPORT=$dir/reports NOTIFY_SOCKET=$dir/nobody exec $bin/ternd "\$@"
SH
chmod +x "$dir/bin/ternd"

TERND=$dir/bin/ternd "$bin/tern-replay" --spawn --sessions 8 --turns 6 --seed 7 --concurrency 4 --corrupt 5 \
    --json >"$dir/replay.json"
replayed=$(find "$dir/reports" -type f | wc -l)
if [ "$replayed" -ne 2 ]; then
    echo "the replay's two daemons left $replayed reports"
    exit 1
fi
# The same with TLS: handshakes, records and the end, from an arena that was made at start.
if "$bin/ternd" --tls-ca=/x --tls-cert=/x --tls-key=/x --tenant name=x,socket=/x,memory=1M \
    --check-config 2>&1 | grep -q 'built without OpenSSL'; then
    echo "TLS is not in this build: not watched"
else
    bash "$here/../../deploy/make-certs.sh" "$dir/certs" prefill decode e2e other
    TERND=$dir/bin/ternd "$bin/tern-replay" --spawn --tls "$dir/certs" --sessions 8 --turns 6 --seed 8 \
        --concurrency 4 --json >"$dir/replay.json"
    if [ -x "$build/tests/e2e_test_tls" ]; then
        TERN_BIN=$dir/bin "$build/tests/e2e_test_tls" >"$dir/tls.log" 2>&1 || {
            grep -v ' OK \] \| RUN ' "$dir/tls.log"
            exit 1
        }
    fi
fi
for name in protocol subscribe; do
    [ -x "$build/tests/e2e_test_$name" ] || continue
    TERN_BIN=$dir/bin "$build/tests/e2e_test_$name" >"$dir/$name.log" 2>&1 || {
        grep -v ' OK \] \| RUN ' "$dir/$name.log"
        exit 1
    }
done

count=0
runs=0
for report in "$dir"/reports/*; do
    read -r ready before counted _ <"$report"
    if [ "$ready" != ready=1 ] || [ "$before" = before=0 ]; then
        echo "this daemon was not watched: $ready $before"
        exit 1
    fi
    if [ "$counted" != count=0 ]; then
        cat "$report"
        count=$((count + ${counted#count=}))
    fi
    runs=$((runs + 1))
done
echo "fault=19 runs=$runs injected=$runs violations=$count count=$count"
[ "$count" -eq 0 ]

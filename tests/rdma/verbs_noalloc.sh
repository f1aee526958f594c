#!/usr/bin/env bash
# In one lab guest: a command whose daemons are watched for what their owner threads allocate after "ready" (fault 19).
#   verbs_noalloc.sh INTERPOSE.SO COMMAND...
# INTERPOSE.SO is tests/e2e/interpose_alloc.c; the command starts its daemons as TERN_BIN/ternd or as TERND. Fails with
# the command, with the first allocation, and if no daemon was watched.
set -u
interpose=$1
shift
dir=$(mktemp -d /tmp/noalloc-XXXXXX)
mkdir "$dir/reports" "$dir/bin"
cat >"$dir/bin/ternd" <<SH
#!/bin/sh
LD_PRELOAD=$interpose INTERPOSE_REPORT=$dir/reports NOTIFY_SOCKET=$dir/nobody exec $TERN_BIN/ternd "\$@"
SH
chmod +x "$dir/bin/ternd"
ln -s "$TERN_BIN"/tern* "$dir/bin/" 2>/dev/null

TERND=$dir/bin/ternd TERN_BIN=$dir/bin "$@" || exit 1
runs=0 failed=0
for report in "$dir"/reports/*; do
    [[ -e $report ]] || break
    read -r ready before count _ <"$report"
    if [[ $ready != ready=1 || $before == before=0 || $count != count=0 ]]; then
        cat "$report"
        failed=$((failed + 1))
    fi
    runs=$((runs + 1))
done
echo "fault=19 runs=$runs injected=$runs violations=$failed over RDMA"
[[ $runs -gt 0 && $failed -eq 0 ]]

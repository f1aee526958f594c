#!/usr/bin/env bash
# Runs a command and counts what the owner threads of its daemons allocate after "ready" (fault 19).
#   noalloc.sh INTERPOSE.SO COMMAND...
# INTERPOSE.SO is interpose_alloc.c; the command starts its daemons as TERN_BIN/ternd or as TERND,
# and their reports are in TERN_BIN/../reports. Lines of other faults that the command leaves in
# TERN_BIN/../faults are printed with the count. Fails if the command fails, if anything is
# allocated, or if no daemon is watched. The RDMA lab uses it, too.
set -u
interpose=$1
shift
dir=$(mktemp -d /tmp/noalloc-XXXXXX)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/reports" "$dir/bin"
cat >"$dir/bin/ternd" <<SH
#!/bin/sh
LD_PRELOAD=$interpose INTERPOSE_REPORT=$dir/reports NOTIFY_SOCKET=$dir/nobody exec $TERN_BIN/ternd "\$@"
SH
chmod +x "$dir/bin/ternd"
ln -s "$TERN_BIN"/tern* "$dir/bin/" 2>/dev/null

TERND=$dir/bin/ternd TERN_BIN=$dir/bin "$@" || exit 1
runs=0 allocations=0 unwatched=0
for report in "$dir"/reports/*; do
    [[ -e $report ]] || break
    read -r ready before count _ <"$report"
    if [[ $ready != ready=1 || $before == before=0 ]]; then
        echo "this daemon was not watched: $ready $before"
        unwatched=1
    fi
    [[ $count == count=0 ]] || cat "$report"
    allocations=$((allocations + ${count#count=}))
    runs=$((runs + 1))
done
[[ -s $dir/faults ]] && sed "s/violations=0.*/violations=$allocations allocs=$allocations/" "$dir/faults"
echo "fault=19 runs=$runs injected=$runs violations=$allocations count=$allocations"
[[ $runs -gt 0 && $unwatched -eq 0 && $allocations -eq 0 ]]

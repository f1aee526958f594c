#!/usr/bin/env bash
# Fault 31: the wall clock of two daemons jumps by an hour, forward or back, at each read, while sessions run, are
# fetched and end. Deadlines, leases and everything else work as usual. See interpose_clock.c.
source "$(dirname "$0")/with_ternd.sh"
[[ -z $SANITIZE ]] || skip "a sanitizer has to be the first library"
"$CC" -std=gnu17 -O1 -shared -fPIC -o "$DIR/interpose.so" "$HERE/interpose_clock.c" -ldl
mkdir "$DIR/reports" "$DIR/clocks"
cat >"$DIR/clocks/ternd" <<SH
#!/bin/sh
LD_PRELOAD=$DIR/interpose.so INTERPOSE_REPORT=$DIR/reports exec $TERN_BIN/ternd "\$@"
SH
chmod +x "$DIR/clocks/ternd"

TERND=$DIR/clocks/ternd "$TERN_BIN/tern-replay" --spawn --sessions 8 --turns 6 --seed 31 --concurrency 4 --json \
    >"$DIR/replay.json" || fail "the replay: $(cat "$DIR/replay.json")"
jumps=0 daemons=0
for report in "$DIR"/reports/*; do
    [[ -e $report ]] || break
    daemons=$((daemons + 1)) jumps=$((jumps + $(<"$report")))
done
[[ $daemons -eq 2 && $jumps -gt 0 ]] || fail "$daemons daemons read the wall clock $jumps times"
json "$(<"$DIR/replay.json")" "j['wrong_bytes'] == j['failed_requests'] == j['leaked_pages'] == 0 and j['requests'] == 48" ||
    fail "$(cat "$DIR/replay.json")"
echo "fault=31 runs=1 injected=$jumps violations=0 lease_errors=0"

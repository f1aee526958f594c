#!/usr/bin/env bash
# Fault 42: the leader of an engine of four ranks is killed while the others write on. See ranks.c. TERN_FULL=1 does
# it 200 times, else 20.
source "$(dirname "$0")/with_ternd.sh"

RUNS=20
[[ ${TERN_FULL:-} == 1 ]] && RUNS=200
RUNS=${TERN_RANKS_RUNS:-$RUNS}
SEED=${TERN_RANKS_SEED:-$(($(date +%s) % 100000))}
# 6 MiB a region: B's pool and A's fit, C's beside A's does not.
ternd_start "" 6M 4
echo "seed $SEED (TERN_RANKS_SEED)"
"$TERN_BUILD/tests/ranks" "$SOCKET" "$ADMIN" "$RUNS" "$SEED" | tee "$DIR/out" || fail "ranks with seed $SEED"
grep -q "^fault=42 runs=$RUNS injected=$RUNS violations=0 reused_before_proof=0 leaked_pages=0$" "$DIR/out" ||
    fail "not the figures that were promised"
kill -0 "$TERND_PID" || fail "the daemon died"

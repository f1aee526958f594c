#!/usr/bin/env bash
# The simulator's transfers from a fresh random start: 2,000 histories, 20,000 with TERN_FULL=1. The start is printed;
# TERN_SIM_FIRST repeats it. Passes if no history broke a promise and every mark was reached.
set -euo pipefail

sim=${TERN_BIN:?}/tern-sim
[ -x "$sim" ] || { echo "tern-sim was not built"; exit 77; }
seeds=2000
[ "${TERN_FULL:-0}" = 1 ] && seeds=20000
first=${TERN_SIM_FIRST:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
out=$(mktemp)
trap 'rm -f "$out"' EXIT

echo "tern-sim --rdma: $seeds seeds from $first (repeat with TERN_SIM_FIRST=$first)"
status=0
"$sim" --rdma --seeds "$seeds" --first "$first" --json >"$out" || status=$?
[ "$status" -eq 2 ] && { echo "this build has no RDMA"; exit 77; }
python3 - "$out" <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))
h = r["histories"]
print(f"{h} histories, {r['events'] / h:.0f} events each, {r['violations']} violations, "
      f"{r['histories_per_s']:.0f} histories a second")
print("injected:", ", ".join(f"{k} {v}" for k, v in r["faults"].items()))
if r["marks_missed"]:
    print("marks missed:", ", ".join(r["marks_missed"]))
assert r["violations"] == 0, r["failing_seeds"]
assert not r["marks_missed"]
missing = [k for k, v in r["faults"].items() if v == 0]
assert not missing, f"never injected: {missing}"
PY
exit "$status"

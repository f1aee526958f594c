#!/usr/bin/env bash
# The simulator from a new random start: 2,000 histories, 20,000 with TERN_FULL=1. The start is printed; TERN_SIM_FIRST
# repeats it. Passes if no history broke a promise and every mark was reached. With --rdma, as test_sim_rdma.sh calls
# it: the transfers alone. The first run also audits the cores' memory after each 16th step.
source "$(dirname "$0")/with_ternd.sh"

sim=$TERN_BIN/tern-sim out=$DIR
[ -x "$sim" ] || skip "tern-sim was not built"
seeds=2000 least=200 audit=(--audit 16)
[ "${TERN_FULL:-0}" = 1 ] && seeds=20000
[ "${1:-}" = --rdma ] && least=0 audit=()
first=${TERN_SIM_FIRST:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}

echo "tern-sim $*: $seeds seeds from $first (repeat with TERN_SIM_FIRST=$first)"
status=0
"$sim" "$@" "${audit[@]}" --seeds "$seeds" --first "$first" --shrink "$out" --json >"$out/result.json" || status=$?
python3 - "$out/result.json" "$least" <<'PY' || status=1
import json, sys
r = json.load(open(sys.argv[1]))
h = r["histories"]
print(f"{h} histories, {r['events'] / h:.0f} events each, {r.get('states', 'no')} states, {r['violations']} violations, "
      f"{r['histories_per_s']:.0f} histories a second")
print("injected:", ", ".join(f"{k} {v}" for k, v in r["faults"].items()))
if r["marks_missed"]:
    print("marks missed:", ", ".join(r["marks_missed"]))
assert r["violations"] == 0, r["failing_seeds"]
assert not r["marks_missed"]
assert r["events"] >= int(sys.argv[2]) * h, f"fewer than {sys.argv[2]} state-changing events a history"
missing = [k for k, v in r["faults"].items() if v == 0]
assert not missing, f"never injected: {missing}"
PY
if ls "$out"/*.tape >/dev/null 2>&1; then
    head -50 "$out"/*.tape
fi
# Every history ends in the same state when it is played again; of the slower transfers alone a tenth is played.
[ "$least" -gt 0 ] || seeds=$((seeds / 10))
"$sim" "$@" --seeds "$seeds" --first "$first" --twice >"$out/twice" || { cat "$out/twice"; status=1; }
exit "$status"

#!/usr/bin/env bash
# The simulator must find every planted bug within 200,000 seeds (two need some 10,000 in the
# middle), in a run from a random start (TERN_FULL=1: in each of five runs from distant starts).
# Prints the table with the median. Searches as many bugs at a time as there are cores.
source "$(dirname "$0")/with_ternd.sh"

sim=$TERN_BIN/tern-sim-bugs
[ -x "$sim" ] || skip "tern-sim-bugs was not built (TERN_BUGS=ON builds it)"
seeds=200000 runs=1
[[ -n ${TERN_FULL:-} ]] && runs=5
first=${TERN_SIM_FIRST:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}

# The message for a number that is no bug: `bugs are numbered 1 to N`.
said=$("$sim" --bug 0 2>&1 || true)
planted=${said##* }
[[ $said == *numbered* && $planted =~ ^[0-9]+$ ]] || fail "tern-sim-bugs does not say how many bugs it has: $said"

echo "tern-sim-bugs: $planted bugs, up to $seeds seeds from $first (repeat with TERN_SIM_FIRST=$first)"
look() { # BUG: writes the result; a bug that this build cannot show has no file
    "$sim" --bug "$1" --runs "$runs" --seeds "$seeds" --first "$first" --json >"$DIR/$1.bug" 2>"$DIR/$1.err" && return
    [[ $? -eq 1 ]] || { grep -q numbered "$DIR/$1.err" && rm "$DIR/$1.bug"; } # 1: found nothing; its file has that result
}
export -f look
export DIR sim seeds runs first
seq "$planted" -1 1 | xargs -P "$(nproc)" -I{} bash -c 'look {}' || fail "tern-sim-bugs ended: $(tail -n 3 "$DIR"/*.err)"

python3 -c '
import json, pathlib, sys
runs = [json.loads(p.read_text()) for p in sorted(pathlib.Path(sys.argv[1]).glob("*.bug"), key=lambda p: int(p.stem))]
r = {"bugs": [b for one in runs for b in one["bugs"]], "missed": sum(one["missed"] for one in runs)}
for b in r["bugs"]:
    print("bug %d %-48s seeds %s median %d (%s)" % (b["bug"], b["text"], b["seeds"], b["seeds_median"], b["violation"]))
looked = [b["bug"] for b in r["bugs"]]
patches = sorted({int(p.name.split("-")[0]) for p in pathlib.Path(sys.argv[2]).glob("[0-9]*-*.patch")})
assert looked == patches, "the bugs that were looked for are not those that have a patch: %s" % set(looked).symmetric_difference(patches)
lost = [b["bug"] for b in r["bugs"] if not b["found"] or len(b["seeds"]) != int(sys.argv[3]) or min(b["seeds"]) == 0]
late = [b["bug"] for b in r["bugs"] if b["bug"] <= 9 and max(b["seeds"]) > 20000]
assert not late, "more than 20,000 seeds: %s" % late
assert not lost and r["missed"] == 0, "planted bugs that were not found: %s" % lost
' "$DIR" "${TERN_SOURCE:?}/tests/sim/bugs" "$runs"
# The kept histories still fail with their bug. If one does not, the simulator has changed: make the
# tape anew with `tern-sim-bugs --bug N --shrink tests/sim/tapes`.
for tape in "${TERN_SOURCE:?}"/tests/sim/tapes/bug-*.tape; do
    bug=${tape##*/bug-}
    if "$sim" --bug "${bug%%-*}" --tape "$tape"; then
        echo "stale: $tape does not show bug ${bug%%-*} any more"
        exit 1
    fi
done
# Without a bug the same build finds nothing.
"$sim" --seeds 1000 --first "$first"
"$sim" --rdma --seeds 1000 --first "$first"

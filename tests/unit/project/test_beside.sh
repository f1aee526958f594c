#!/usr/bin/env bash
# tests/bench/beside_figures.py on made-up figures: medians and ratios are right, in the direction of each figure, an
# exceeded limit fails, and figures that only one build has are named. beside.sh itself accepts only known options.
set -euo pipefail
cd "$TERN_SOURCE"
dir=$(mktemp -d /tmp/tern-beside-test-XXXXXX)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $*" && cat "$dir/out" && exit 1; }

figures() { # ROUND SIDE US GB_S: match_us, and gb_s of the row of 4 KiB pages; another key for each side
    printf '{"match_us": %s, "raw_match_us": %s, "rows": [{"page_bytes": 4096, "gb_s": %s}], "of_%s": 1}\n' \
        "$3" "$3" "$4" "$2" >"$dir/rpc.$1.$2"
}

judge() { # STATUS OPTION...
    local want=$1 rc=0
    shift
    python3 tests/bench/beside_figures.py --results "$dir" --rounds 3 --base old "$@" rpc >"$dir/out" 2>&1 || rc=$?
    [[ $rc -eq $want ]] || fail "ended with $rc and not $want: $*"
}

says() { grep -qE -- "$1" "$dir/out" || fail "does not say '$1'"; }

for round in 1 2 3; do
    figures $round base 10$round 4
    figures $round this 20$round 2
done
figures 2 this 102 8 # one round is an outlier
judge 0 --json "$dir/json"
says '^rpc\.match_us +102 +201 +1\.9[0-9]+  1\.000 to 1\.9[0-9]+$'
says '^rpc\.rows\[4096\]\.gb_s +4 +2 +2\.000  0\.500 to 2\.000$' # fewer bytes a second are slower
says '^only in this tree: rpc\.of_this$'
says '^only in old: rpc\.of_base$'
python3 -c 'import json, sys; j = json.load(open(sys.argv[1])); assert j["base"] == "old" and len(j["figures"]) == 4, j' \
    "$dir/json" || fail "the JSON is not as it must be"
judge 1 --limit 1.03
says '^FAILED: slower than 1\.03 x: rpc\.match_us, rpc\.rows\[4096\]\.gb_s$'
judge 0 --limit 2.5
judge 0 --limit 1.03 --only raw_ # the raw side measures the machine, and has no limit
judge 1 --only nothing_is_called_so
for wrong in '--rounds 0' '--limit x' '--bases HEAD' '--base'; do
    rc=0
    # shellcheck disable=SC2086
    bash tests/bench/beside.sh $wrong >"$dir/out" 2>&1 || rc=$?
    [[ $rc -eq 2 ]] || fail "beside.sh $wrong ended with $rc"
done

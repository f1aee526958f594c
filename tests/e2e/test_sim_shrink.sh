#!/usr/bin/env bash
# Histories over RDMA that fail by the seam's planted bugs shrink to a tenth of their choices and
# faults; each plays to the same violation twice, and to none in the good build. This needs two
# properties: a history played by its list is the one that chance made, and leaving one item out
# keeps most of the rest unchanged. TERN_FULL=1 shrinks two more, which take two minutes of a core.
source "$(dirname "$0")/with_ternd.sh"

sim=$TERN_BIN/tern-sim out=$DIR
[ -x "$sim-bugs" ] || skip "tern-sim-bugs was not built (TERN_BUGS=ON builds it)"
bugs=(21 22 24 25 26)
[[ -n ${TERN_FULL:-} ]] && bugs+=(23 27)
for bug in "${bugs[@]}"; do
    mkdir "$out/$bug"
    "$sim-bugs" --bug $bug --seeds 40000 --shrink "$out/$bug" 2>&1 | tee -a "$out/said"
    tapes=("$out/$bug"/*.tape)
    tape=${tapes[0]} what=${tapes[0]##*/bug-"$bug"-} # one tape, named for the violation
    [ ${#tapes[@]} -eq 1 ] && [ -f "$tape" ] || fail "bug $bug: not one tape: ${tapes[*]}"
    tail -n 1 "$out/said" | grep -F "(${what%.tape})" >/dev/null || fail "bug $bug: shrunk to another violation: $tape"
    first=$("$sim-bugs" --bug $bug --tape "$tape") && fail "bug $bug: its tape shows nothing: $first"
    again=$("$sim-bugs" --bug $bug --tape "$tape") && fail "bug $bug: its tape shows nothing: $again"
    [ "$first" = "$again" ] || fail "bug $bug: $first; and then: $again"
    [[ $first == *": ${what%.tape}: "* ]] || fail "bug $bug: another violation: $first"
    "$sim" --tape "$tape" || fail "bug $bug: its tape fails without the bug"
done
for text in "seed" "choices 100000" "choice 5000000000" "no_such_fault 3"; do
    printf 'tern-sim rdma history 1\n%s\n' "$text" >"$out/bad.tape"
    status=0
    "$sim" --tape "$out/bad.tape" || status=$?
    [ $status -eq 2 ] || fail "read as a history: $text"
done

python3 - "$sim" "$out" "${#bugs[@]}" <<'PY'
import collections, re, statistics, subprocess, sys
sim, out, bugs = sys.argv[1:]
sizes = [tuple(map(int, m)) for m in re.findall(r"shrunk from (\d+) to (\d+) ", open(out + "/said").read())]
before, after = map(sum, zip(*sizes))
print(f"shrunk from {before} to {after} choices and faults in all: {sizes}")
assert len(sizes) == int(bugs) and 10 * after <= before

def play(*args):
    said = subprocess.run([sim, "--verbose", *args], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True).stderr
    return [l for l in said.splitlines() if re.match(r" *\d+ \w+ \d", l)] # a sanitizer may print, too

def play_items(seed, choices, items):
    with open(out + "/some.tape", "w") as f:
        f.write(f"tern-sim rdma history 1\nseed {seed}\nchoices {choices}\n" + "".join(f"{i}\n" for i in items))
    return play("--tape", out + "/some.tape")

# The log has a line `TIME thing ...` for each event, and a line `TIME NAME NUMBER` for each item.
# Compares the rest of the log with each item left out; a history in which everything depends on every
# item counts like any other.
kept = []
for seed in range(1, 25):
    log = play("--rdma", "--seeds", "1", "--first", str(seed))
    at = [i for i, l in enumerate(log) if l.split()[1] != "thing"]
    items = [log[i].split(maxsplit=1)[1] for i in at]
    choices = sum(i.startswith("choice ") for i in items)
    assert play_items(seed, choices, items) == log, f"seed {seed}: by its list it is another history"
    for k in range(0, len(items), len(items) // 8):
        less, had = play_items(seed, choices, items[:k] + items[k + 1:]), log[:at[k]] + log[at[k] + 1:]
        first = next((i for i, (a, b) in enumerate(zip(less, had)) if a != b), len(had))
        same = sum((collections.Counter(had[first:]) & collections.Counter(less[first:])).values())
        kept.append(same / (len(had) - first) if first < len(had) else 1)
quarter, half, _ = statistics.quantiles(kept)
print(f"one item left out: from the first difference on, half keep {half:.2f} of the lines, three of four {quarter:.2f}")
assert half > 0.95 and quarter > 0.6
PY

#!/usr/bin/env bash
# What it costs a daemon to be watched: `tern-bench rpc` and `tern-bench transfer` by turns alone and with a tern-agent that
# is scraped each second and a `ternctl top` beside each daemon. Prints for each figure the median of the pairs' ratios,
# 1.00 where watching costs nothing. Exit status: 1 where one is worse by more than 2 % and by more than the pairs
# themselves differ. For a machine at rest.
#
#   tests/bench/watched.sh [PAIRS [BENCH-OPTION...]]      15 pairs; `--quick` for short ones
set -euo pipefail
bin=${TERN_BIN:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/build/bin}
pairs=${1:-15}
shift || true
work=$(mktemp -d)
trap 'kill 0 2>/dev/null' TERM INT
trap 'rm -rf "$work"' EXIT
for program in curl script; do
    command -v $program >/dev/null || { echo "watched: $program is needed (packages curl, bsdutils)" >&2 && exit 2; }
done

watch() { # SOCKET: until the daemon ends
    local url agent top said=$work/said.$BASHPID
    "$bin/tern-agent" --listen 127.0.0.1:0 --socket "$1" 2>"$said" &
    agent=$!
    script -qfc "'$bin/ternctl' --socket '$1' top" /dev/null </dev/null >"$said.top" 2>&1 &
    top=$!
    while [[ -S $1 ]] && ! grep -qs "listens at" "$said"; do sleep 0.05; done
    url=$(sed -n 's/.*listens at \(.*\)\/$/\1/p' "$said")
    while [[ -S $1 ]]; do
        curl -s -m 5 -o /dev/null "$url/metrics" && echo "$1" >>"$work/scrapes"
        sleep 1
    done
    kill $agent $top 2>/dev/null || true
}
watchers() { # each daemon of the benchmark gets one
    local seen=" " socket
    while :; do
        for socket in "${TMPDIR:-/tmp}"/tern-bench.*/*.admin; do
            [[ -S $socket && $seen != *" $socket "* ]] || continue
            seen+="$socket "
            watch "$socket" &
        done
        sleep 0.1
    done
}
bench() { # FILE MODE [watched]
    local watcher=
    if [[ ${3:-} ]]; then
        watchers &
        watcher=$!
    fi
    "$bin/tern-bench" "$2" --json "${options[@]}" >"$1" 2>/dev/null || [[ $? -eq 1 ]] # 1: a time beyond its limit
    [[ -z $watcher ]] || kill "$watcher"
}

options=("$@")
: >"$work/scrapes"
for ((i = 0; i < pairs; i++)); do
    for mode in rpc transfer; do
        order=("" watched)
        ((i % 2)) && order=(watched "")
        for how in "${order[@]}"; do bench "$work/$mode.$i.${how:-alone}" $mode "$how"; done
    done
done
python3 - "$work" "$pairs" "$(wc -l <"$work/scrapes")" <<'PYTHON'
import json, pathlib, statistics, sys

work, pairs, scrapes = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
# name: where, and whether more is better
FIGURES = {
    "rpc": {"match_rtt_us_p50": False, "pipelined_per_s": True, "step_us_p50": False, "decode_step_us_p50": False},
    "transfer": {f"gb_s of {n} KiB pages": True for n in (16, 64, 256, 1024)},
}

def figure(mode, j, name):
    return j[name] if mode == "rpc" else {r["page_bytes"]: r["gb_s"] for r in j["rows"]}[int(name.split()[2]) << 10]

worse = []
for mode, names in FIGURES.items():
    runs = [[json.loads((work / f"{mode}.{i}.{how}").read_text()) for how in ("alone", "watched")] for i in range(pairs)]
    for name, more in names.items():
        ratios = sorted(figure(mode, b, name) / figure(mode, a, name) for a, b in runs)
        if more:
            ratios = sorted(1 / r for r in ratios)
        middle = statistics.median(ratios)
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        print(f"{mode:9} {name:24} takes {middle:.3f} times as long, the middle half {low:.3f} to {high:.3f}")
        if middle > 1.02 and low > 1.02:
            worse.append(name)
print(f"{pairs} pairs, {scrapes} scrapes")
assert scrapes > 0, "nothing was watched"
sys.exit(bool(worse) and f"watching costs more than 2 %: {', '.join(worse)}")
PYTHON

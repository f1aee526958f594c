#!/usr/bin/env bash
# Compares tern-bench of this tree with another build's, alternating, so that a change of the machine's speed hits both.
#
#   tests/bench/beside.sh [--base REV | --base-build DIR] [--rounds N] [--limit X] [--only REGEX] [--json FILE] [--quick]
#                         [STAGE...]
#
# For each figure: the medians of both builds, the median of the rounds' ratios (this tree to the base) and the least and
# greatest of them. A ratio above 1 is slower: figures for which more is better are inverted. Figures of unknown
# direction, and those of the raw side, have no limit.
#
# STAGE         of tern-bench (default: index, rpc and transfer)
# --base REV    a commit, built in build-beside/ (default: HEAD, so the working tree's changes alone are seen)
# --base-build  an existing build folder with tern-bench and ternd in bin/
# --rounds      number of pairs (default 5)
# --limit       1.03: fails if the median of a figure's ratios is above that
# --only        judges and prints only the matching figures, such as 'rpc.match_rtt_us_p50$'
# --json        writes the figures there
# --quick       tern-bench runs few rounds: for a test of this script
#
# TERN_BUILD is this tree's build folder (default build), which is built first. Exit status: 1 if a limit is exceeded,
# 2 if something could not be measured.
set -euo pipefail
cd "$(dirname "$0")/../.."

usage() { sed -n '4,5s/^# *//p' "$0" >&2 && exit 2; }
fail() { echo "beside.sh: $*" >&2 && exit 2; }

build=${TERN_BUILD:-build} base=HEAD base_build='' rounds=5 limit='' only='' json='' quick=() stages=()
while [[ $# -gt 0 ]]; do
    case $1 in
    --base | --base-build | --rounds | --limit | --only | --json)
        [[ $# -ge 2 ]] || usage
        name=${1#--}
        printf -v "${name//-/_}" %s "$2"
        shift
        ;;
    --quick) quick=(--quick) ;;
    -*) usage ;;
    *) stages+=("$1") ;;
    esac
    shift
done
[[ ${#stages[@]} -gt 0 ]] || stages=(index rpc transfer)
[[ $rounds =~ ^[1-9][0-9]*$ ]] || usage
[[ -z $limit || $limit =~ ^[0-9]+(\.[0-9]+)?$ ]] || usage

cached() { # NAME: what this tree's build was configured with
    sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"
}

make_programs() { # BUILD: tern-bench runs the other two
    cmake --build "$1" --target tern-bench tern-replay ternd >"$1/beside.log" 2>&1 || { tail -n 30 "$1/beside.log" && fail "$1 is not built"; }
}

# A commit of its own, with the settings of this tree's build.
make_base() {
    local commit folder
    commit=$(git rev-parse --verify --quiet "$base^{commit}") || fail "$base is no commit"
    folder=build-beside/${commit:0:12}
    base_build=$folder/build
    if [[ ! -e $folder/source ]]; then
        rm -rf "$folder.new" && mkdir -p "$folder.new/source"
        git archive "$commit" | tar -x -C "$folder.new/source"
        rm -rf "$folder" && mv "$folder.new" "$folder"
    fi
    cmake -S "$folder/source" -B "$base_build" -G "$(cached CMAKE_GENERATOR)" -DCMAKE_BUILD_TYPE="$(cached CMAKE_BUILD_TYPE)" \
        -DCMAKE_C_COMPILER="$(cached CMAKE_C_COMPILER)" -DCMAKE_C_COMPILER_LAUNCHER="$(cached CMAKE_C_COMPILER_LAUNCHER)" \
        >"$folder/configure.log" 2>&1 || { tail -n 30 "$folder/configure.log" && fail "$base is not configured"; }
    make_programs "$base_build"
}

run_bench() { # BUILD STAGE FILE: 1 and 3 say that a limit of tern-bench's own is not kept
    local rc=0
    "$1/bin/tern-bench" "$2" --json "${quick[@]}" >"$3" 2>"$3.err" || rc=$?
    [[ $rc -eq 0 || $rc -eq 1 || $rc -eq 3 ]] || { cat "$3.err" >&2 && fail "$1/bin/tern-bench $2 ended with $rc"; }
}

[[ -e $build/CMakeCache.txt ]] || fail "$build is no build folder: configure this tree first, or name one in TERN_BUILD"
make_programs "$build"
if [[ -n $base_build ]]; then
    [[ -x $base_build/bin/tern-bench && -x $base_build/bin/ternd ]] || fail "$base_build has no tern-bench and ternd in bin/"
    base=$base_build
else
    make_base
fi

results=$(mktemp -d /tmp/tern-beside-XXXXXX)
trap 'rm -rf "$results"' EXIT
for stage in "${stages[@]}"; do
    for round in $(seq "$rounds"); do
        run_bench "$base_build" "$stage" "$results/$stage.$round.base"
        run_bench "$build" "$stage" "$results/$stage.$round.this"
    done
done
python3 tests/bench/beside_figures.py --results "$results" --rounds "$rounds" --base "$base" --limit "${limit:-0}" \
    --only "$only" --json "$json" "${stages[@]}"

#!/usr/bin/env bash
# Runs one fuzz target under libFuzzer with sanitizers, or reduces its findings to a small corpus.
#
#   tests/fuzz/fuzz.sh run TARGET SECONDS   searches from tests/fuzz/corpus/TARGET; a finding fails, and its file
#                                           and the command that runs it again are printed last. So does a
#                                           run in which less than half pass the first check (passed.h)
#   tests/fuzz/fuzz.sh keep TARGET          adds to tests/fuzz/corpus/TARGET the smallest inputs that reach code
#                                           which those with a name of their own do not reach
#
# TERN_FUZZ_BUILD  the build folder (default build-fuzz), made by: CC=clang cmake -S . -B build-fuzz -DTERN_FUZZ=ON
set -uo pipefail
cd "$(dirname "$0")/../.." || exit

if [[ ! (${1:-} == run && $# -eq 3) && ! (${1:-} == keep && $# -eq 2) ]]; then
    echo "usage: tests/fuzz/fuzz.sh run TARGET SECONDS | keep TARGET" >&2
    exit 2
fi
name=$2
build=${TERN_FUZZ_BUILD:-build-fuzz}
program=$build/tests/fuzz_$name
corpus=tests/fuzz/corpus/$name
found=$build/corpus/$name # grows from run to run
[[ -x $program ]] || { echo "$program is not built" && exit 1; }
mkdir -p "$found" "$build/findings" "$corpus"

# A small quarantine: memory that an input leaves in the allocator costs the next one new pages.
export ASAN_OPTIONS=${ASAN_OPTIONS:-quarantine_size_mb=4:malloc_context_size=8}
limits=(-rss_limit_mb=1024 -timeout=25 -use_value_profile=0)
# An input of the core is a long history, and weighing it by the rarity of its branches takes longer than playing it.
[[ $name == core ]] && limits+=(-entropic=0)

is_found() { [[ $(basename "$1") =~ ^[0-9a-f]{40}$ ]]; } # libFuzzer names its files so

run() { # SECONDS
    local log=$build/findings/$name.log rc=0 finding
    "$program" "${limits[@]}" -max_total_time="$1" -print_final_stats=1 -artifact_prefix="$build/findings/$name-" \
        "$found" "$corpus" >"$log" 2>&1 || rc=$?
    if [[ $rc -eq 0 ]]; then
        grep -E 'stat::(number_of_executed_units|average_exec_per_sec|new_units_added|peak_rss_mb)|DONE|^passed:' "$log"
        grep -q '^passed: .*the first check$' "$log" && return
        echo "fuzz $name: fewer than half of the inputs get past the first check, so what lies behind it is not fuzzed"
        return 1
    fi
    tail -n 60 "$log"
    finding=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    if [[ -z $finding ]]; then
        echo "fuzz $name ended with $rc and left no input: see $log"
    else
        echo "fuzz $name found an input that fails: $finding"
        echo "run it again: $program $finding"
        echo "base64: $(base64 -w 0 "$finding" | head -c 4000)"
    fi
    return 1
}

keep() {
    local small file
    small=$(mktemp -d "$build/keep.XXXXXX") || return
    for file in "$corpus"/*; do
        [[ -f $file ]] && ! is_found "$file" && cp "$file" "$small/"
    done
    "$program" "${limits[@]}" -merge=1 -use_counters=0 "$small" "$found" "$corpus" >"$build/findings/$name-keep.log" 2>&1 ||
        { tail -n 30 "$build/findings/$name-keep.log" && return 1; }
    for file in "$corpus"/*; do
        [[ -f $file ]] && is_found "$file" && rm "$file"
    done
    for file in "$small"/*; do
        is_found "$file" && cp "$file" "$corpus/"
    done
    rm -r "$small"
    echo "$corpus: $(find "$corpus" -type f | wc -l) inputs, $(du -sb "$corpus" | cut -f 1) bytes"
}

"$1" "${3:-}"

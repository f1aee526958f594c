#!/usr/bin/env bash
# Builds everything and runs every test; under 30 minutes on two cores. `--full` runs the long forms.
# Prints what ran and for how long, then `N passed, N failed, N skipped`. Not zero on any failure.
#
# TERN_TRACES      folder of traces; without it their tests are skipped, visibly
# TERN_SIM_FIRST   first seed of the simulator, to repeat a run (default: random, printed)
set -uo pipefail
cd "$(dirname "$0")/.."

full=0
case "${1:-}" in
"") ;;
--full) full=1 ;;
*)
    echo "usage: tests/run.sh [--full]" >&2
    exit 2
    ;;
esac

jobs=$(nproc)
root=$PWD
logs=$root/build/logs
mkdir -p "$logs"
if [[ -n ${TERN_TRACES:-} ]]; then
    TERN_TRACES=$(realpath -m "$TERN_TRACES") # tests run in other folders
    export TERN_TRACES
fi
[[ $full -eq 1 ]] && export TERN_FULL=1
passed=0 failed=0 skipped=0
table=()
reasons=() # of each failure: the end of its log
REASON_LINES=12

# note NAME SECONDS PASSED FAILED SKIPPED [REMARK]
note() {
    passed=$((passed + $3)) failed=$((failed + $4)) skipped=$((skipped + $5))
    table+=("$(printf '%-28s %7s %7s %7s %7s  %s' "$1" "$2" "$3" "$4" "$5" "${6:-}")")
}

# stage NAME REMARK COMMAND...: one thing that passes, fails, or is skipped by exit status 77
stage() {
    local name=$1 remark=$2 start=$SECONDS rc=0
    local log=$logs/${name// /-}.log
    shift 2
    echo "== $name"
    "$@" >"$log" 2>&1 || rc=$?
    case $rc in
    0) note "$name" $((SECONDS - start)) 1 0 0 "$remark" ;;
    77) note "$name" $((SECONDS - start)) 0 0 1 "$(tail -n 1 "$log")" ;;
    *)
        note "$name" $((SECONDS - start)) 0 1 0 "$log"
        echo "FAILED (exit $rc): $*"
        tail -n 40 "$log"
        reasons+=("== $name" "$(tail -n "$REASON_LINES" "$log")")
        ;;
    esac
    return $rc
}

# begin NAME COMMAND...: runs in the processor time that the following stages leave; `stage NAME
# REMARK ended NAME` waits for it.
declare -A begun=()
begin() {
    local name=$1
    shift
    echo "== $name, beside what follows"
    (renice -n 19 "$BASHPID" >/dev/null && "$@") >"$logs/begun-${name// /-}.log" 2>&1 &
    begun[$name]=$!
}

ended() {
    local rc=0
    wait "${begun[$1]}" || rc=$?
    cat "$logs/begun-${1// /-}.log"
    return "$rc"
}

attribute() { # FILE NAME: a number from the head of a JUnit file
    grep -o -m 1 "[[:space:]]$2=\"[0-9]*\"" "$1" | head -n 1 | tr -dc '0-9'
}

# tests BUILD LABEL JOBS: the ctests of one label; each counts. No test at all is a failure.
tests() {
    local build=$1 label=$2 n=$3 start=$SECONDS rc=0 all bad off
    local log=$logs/$build-$label.log xml=$logs/$build-$label.xml
    echo "== $build: $label tests"
    rm -f "$xml"
    ctest --test-dir "$build" -L "^$label\$" -j "$n" --output-on-failure --no-tests=ignore \
        --output-junit "$xml" >"$log" 2>&1 || rc=$?
    grep -E '\*\*\*|^(FAILED|SKIP)|skipp?ed:' "$log" | head -n 60
    all=0
    [[ -s $xml ]] && all=$(attribute "$xml" tests)
    if [[ $all -eq 0 ]]; then
        if [[ $rc -eq 0 ]]; then
            note "$build: $label" 0 0 1 0 "no test has this label: see what was left out of the build"
        else
            note "$build: $label" $((SECONDS - start)) 0 1 0 "$log"
            tail -n 40 "$log"
        fi
        return
    fi
    bad=$(attribute "$xml" failures) off=$(attribute "$xml" skipped)
    off=$((off + $(attribute "$xml" disabled)))
    [[ $rc -ne 0 && $bad -eq 0 ]] && bad=1
    note "$build: $label" $((SECONDS - start)) $((all - bad - off)) "$bad" "$off" "$([[ $bad -gt 0 ]] && echo "$log")"
    [[ $bad -gt 0 ]] && tail -n 60 "$log" && reasons+=("== $build: $label" "$(why_failed "$log")")
}

why_failed() { # LOG of ctest: each failed test and the first lines of its output that name an error
    awk -v most="$REASON_LINES" '
        / Test +#[0-9]+: / { failed = /\*\*\*(Failed|Timeout|Exception|Not Run)/; n = 0; if (failed) print; next }
        failed && n < most && /ERROR|LINE|[Ee]rror:|FAIL|check failed|not ok/ { print; n++ }' "$1"
}

build() { # FOLDER CMAKE-ARGUMENTS... [--target TARGET]
    local dir=$1 target=()
    shift
    [[ ${*: -2:1} == --target ]] && target=("${@: -2}") && set -- "${@:1:$#-2}"
    cmake -S . -B "$dir" -G Ninja "$@" && cmake --build "$dir" -j "$jobs" "${target[@]}"
}

# A machine without any optional part, whatever is installed here: none is found. The whole build passes,
# reports what is left out, and needs none of it. It is built as tests/mutate builds, which must work, too.
build_of_few() {
    local finder=$PWD/build/pkg-config-of-few part as_mutants
    printf '#!/bin/sh\nfor word; do case $word in cmocka*|libmicrohttpd*|libcurl*) exit 1 ;; esac; done\nexec pkg-config "$@"\n' \
        >"$finder" && chmod +x "$finder" || return
    mapfile -t as_mutants < <(tests/mutate/mutate options)
    [[ ${#as_mutants[@]} -gt 0 ]] || return
    cmake -S . -B build-few -G Ninja -DPKG_CONFIG_EXECUTABLE="$finder" -DPATCH=OFF -DSCDOC=OFF -DNVCC=OFF \
        "${as_mutants[@]}" -DTERN_BUGS=ON |
        tee "$logs/build-few.log" || return
    for part in 'KERNELS: ' 'MAN: ' 'AGENT: ' 'MEMBER: ' 'patch '; do
        grep -q "left out: $part" "$logs/build-few.log" || return
    done
    cmake --build build-few -j "$jobs"
}

without_packages() {
    ended "build of few" || return
    ! grep -E 'systemd|cmocka|cuda|microhttpd|curl' <<<"$(ldd build-few/bin/*)" || return
    build-few/bin/tern-replay --spawn --sessions 2 --turns 2
}

# In full, on a machine at rest. test_json_keys.sh has the quick runs, which show that the
# benchmarks work and count right.
bench() { # MODE
    stage "bench $1" "" build/bin/tern-bench "$1"
    cat "$logs/bench-$1.log"
}

fuzz_ended() { # TARGET
    cat "$logs/fuzzed-$1.log" && return "$(cat "$logs/fuzzed-$1.rc")"
}

fuzz() { # SECONDS TARGET...: as many at a time as there are cores
    local seconds=$1 target
    shift
    echo "== $# fuzz targets, $seconds s each"
    printf '%s\n' "$@" | logs=$logs seconds=$seconds xargs -P "$jobs" -I{} bash -c \
        'bash tests/fuzz/fuzz.sh run {} "$seconds" >"$logs/fuzzed-{}.log" 2>&1; echo $? >"$logs/fuzzed-{}.rc"'
    for target; do
        stage "fuzz $target" "$seconds s" fuzz_ended "$target" &&
            sed -n 's/^stat::average_exec_per_sec: */  inputs a second: /p' "$logs/fuzz-$target.log"
    done
}

finish() {
    printf '\n%-28s %7s %7s %7s %7s\n' "what" "seconds" "passed" "failed" "skipped"
    printf '%s\n' "${table[@]}"
    printf '%-28s %7s\n\n' "all" "$SECONDS"
    [[ ${#reasons[@]} -gt 0 ]] && printf '%s\n' "why tests failed:" "${reasons[@]}" ""
    echo "$passed passed, $failed failed, $skipped skipped"
    [[ $failed -eq 0 ]]
    exit
}

stage "set-up" "" bash deploy/setup.sh || finish
timeout_s=1800 # for one test: many times its duration
[[ $full -eq 1 ]] && timeout_s=7200
stage "build gcc" "" build build -DTERN_E2E_TIMEOUT=$timeout_s || finish
grep 'left out' "$logs/build-gcc.log" | sed 's/^-- *//'
[[ -r ${TERN_TRACES:-}/conversation.jsonl ]] || echo "no traces in TERN_TRACES=${TERN_TRACES:-}: their tests are skipped"

# The simulator and its planted bugs are end-to-end tests; all start from this seed.
export TERN_SIM_FIRST=${TERN_SIM_FIRST:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
echo "simulator: first seed $TERN_SIM_FIRST (repeat with TERN_SIM_FIRST=$TERN_SIM_FIRST)"

# The second compiler builds everything, with sanitizers, and gives the same warnings. The tests that
# run meanwhile leave enough processor time for it.
CC=clang CXX=clang++ begin "build clang asan" build build-asan -DTERN_SANITIZE=address -DTERN_BUGS=OFF
begin "build of few" build_of_few

tests build unit $((2 * jobs)) # they wait for a third of their time
tests build sim "$jobs"
tests build fuzz "$jobs"
tests build e2e $((2 * jobs)) # they wait more than they compute
tests build gpu 1
tests build rdma "$jobs" # a guest has one processor
if [[ $full -eq 1 ]]; then
    stage "set-up vLLM" "" bash deploy/venv.sh vllm && tests build vllm 1
    stage "set-up Dynamo" "" bash deploy/venv.sh dynamo && tests build dynamo 1
else
    note "build: vllm" 0 0 0 1 "with --full alone: it installs 7 GB"
    note "build: dynamo" 0 0 0 1 "with --full alone: it installs 0.4 GB"
fi
if [[ $full -eq 1 ]]; then
    for mode in index publish retention rpc transfer reshard neighbours health spill; do
        bench $mode
    done
    stage "replay follow" "" build/bin/tern-replay --follow
    cat "$logs/replay-follow.log"
else
    note "benchmarks" 0 0 0 0 "with --full alone, and quick ones among the end-to-end tests"
fi
stage "demo" "what README begins with" bash deploy/demo.sh

stage "without packages" "built beside the tests; and a replay" without_packages

if stage "build clang asan" "begun beside the tests" ended "build clang asan"; then
    tests build-asan unit $((2 * jobs))
    [[ $full -eq 1 ]] && tests build-asan rdma 1
    seeds=$((full ? 5000 : 1000)) # with fewer, marks are missed by chance
    stage "simulator asan" "$seeds seeds" build-asan/bin/tern-sim --seeds $seeds --first "$TERN_SIM_FIRST" \
        --audit 16 --json
    stage "simulator of RDMA asan" "$seeds seeds" \
        build-asan/bin/tern-sim --rdma --seeds $seeds --first "$TERN_SIM_FIRST" --json
fi

# Ten seconds find what is easy to reach; the long form finds what a change made reachable.
if CC=clang stage "build fuzzers" "" build build-fuzz -DTERN_FUZZ=ON --target fuzzers; then
    seconds=$((full ? 600 : 10))
    targets=(build-fuzz/tests/fuzz_*)
    fuzz $seconds "${targets[@]##*/fuzz_}"
fi

if [[ $full -eq 1 ]]; then
    stage "mutate self-test" "" tests/mutate/mutate self-test
    if stage "build tsan" "" build build-tsan -DTERN_SANITIZE=thread; then
        tests build-tsan unit "$jobs"
    fi
fi
finish

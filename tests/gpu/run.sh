#!/usr/bin/env bash
# All tests that need a GPU, and how fast each kernel is: one JSON object on standard output (to a file, too, where
# one is named). On a machine without Tern's sources it needs this script, tern-gpu beside it, and NVIDIA's driver:
#     scp build/bin/tern-gpu tests/gpu/run.sh HOST: && ssh HOST ./run.sh
# Exit status: that of tern-gpu (tests/gpu/main.c); 77 without a GPU.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)

program=
for folder in "${TERN_BIN:-}" "$here" "$here/../../build/bin"; do
    [[ -n $folder && -x $folder/tern-gpu ]] && program=$folder/tern-gpu && break
done
[[ -n $program ]] || {
    echo "skipped: there is no tern-gpu in TERN_BIN, beside this script or in build/bin: build it, or carry it here"
    exit 77
}

quick=() out=/dev/null
for word; do
    case $word in
    --quick) quick=(--quick) ;;
    -*)
        echo "usage: run.sh [--quick] [FILE]" >&2
        exit 2
        ;;
    *) out=$word ;;
    esac
done
"$program" "${quick[@]}" | tee "$out"
exit "${PIPESTATUS[0]}"

#!/usr/bin/env bash
# Runs all tests that need a GPU, and measures each kernel: one JSON object on standard output, and in a file
# if one is named. On a machine without Tern's sources it needs this script, tern-gpu beside it, and NVIDIA's driver:
#     scp build/bin/tern-gpu tests/gpu/run.sh HOST: && ssh HOST ./run.sh
# If the sources and ternd are there, it then runs daemons.sh, whose output goes to standard error.
# Exit status: that of tern-gpu (tests/gpu/main.c), 5 if that is 0 and daemons.sh failed; 77 without a GPU.
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
status=${PIPESTATUS[0]}
if [[ $status -ne 77 && -e $here/daemons.sh && -x ${program%/*}/ternd ]]; then
    TERN_BIN=$(cd "${program%/*}" && pwd) bash "$here/daemons.sh" >&2 || [[ $? -eq 77 || $status -ne 0 ]] || status=5
fi
exit "$status"

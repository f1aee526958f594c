#!/usr/bin/env bash
# The programs for a GPU, on a stand-in for the driver's library that runs kernels on the CPU: tern-gpu finds no fault,
# and finds a byte that a launch spoils; without a driver it is skipped, and tern-bench prints the reason.
set -uo pipefail
standin=${TERN_BUILD:?the build folder}/tests/standin
run=${TERN_SOURCE:?}/tests/gpu/run.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; cat "$work"/*; exit 1; }

if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
    bash "$run" "$work/out" >"$work/said" 2>&1
    [[ $? -eq 77 ]] && grep -q '^skipped: ' "$work/said" || fail "without a GPU it should be skipped"
    "$TERN_BIN/tern-bench" kernels --json >"$work/said" 2>&1
    [[ $? -eq 2 ]] && grep -q 'could not be measured' "$work/said" || fail "tern-bench kernels without a GPU"
fi

command -v python3 >/dev/null || { echo "skipped: python3 is needed to read what is printed"; exit 77; }
[[ -f $standin/libcuda.so.1 ]] || { echo "skipped: the stand-in needs a C++ compiler (package g++)"; exit 77; }
export LD_LIBRARY_PATH=$standin
bash "$run" --quick "$work/out" >"$work/said" 2>"$work/errors"
status=$?
grep -q 'no kernels for a GPU' "$work/said" && { echo "skipped: this build had no nvcc"; exit 77; }
[[ $status -eq 0 || $status -eq 1 ]] || fail "tern-gpu: $status"
cmp -s "$work/out" "$work/said" || fail "the file is not what was printed"
python3 - "$work/out" <<'PYTHON' || fail "what tern-gpu printed"
import json, sys
said = json.load(open(sys.argv[1]))
assert said["wrong"] == 0 and [c["name"] for c in said["cases"]] == ["gather", "scatter", "zero", "checksum", "reshard", "fp8", "tell"]
assert all(c["geometries"] > 0 for c in said["cases"])
assert len(said["rows"]) == 7 and all(r["gb_s"] > 0 and r["ratio"] > 0 for r in said["rows"]), said["rows"]
assert len(said["rules"]) == 6 and all(r["answer"] == "not tried" for r in said["rules"]) and said["refuted"] == 0
assert said["within"] == all(r["ratio"] >= r["least"] for r in said["rows"])
PYTHON
"$TERN_BIN/tern-bench" kernels --quick --json >"$work/said" 2>"$work/errors"
[[ $? -le 1 ]] && grep -q '"copy_gb_s"' "$work/said" || fail "tern-bench kernels"

FAKE_CUDA_WRONG=1 bash "$run" --quick >"$work/said" 2>"$work/errors"
[[ $? -eq 3 ]] || fail "a byte that a launch spoiled was not found"
grep -q 'byte 0 of the arena' "$work/errors" || fail "which byte was wrong is not said"
echo "all passed"

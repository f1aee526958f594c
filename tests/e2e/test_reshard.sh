#!/usr/bin/env bash
# Pools of every kind, divided over 1, 2, 4 and 8 ranks at either end, exchange pages through two daemons; what each
# byte is the program knows of its own (N3, X5, X7). With TERN_FULL over one and two pipeline stages, too.
set -euo pipefail
replay=${TERN_BIN:?}/tern-replay
out=$(mktemp)
trap 'rm -f "$out"' EXIT

stages=1:1
[[ ${TERN_FULL:-} ]] && stages=all
"$replay" --reshard --stages "$stages" | tee "$out"
tail -1 "$out" | grep -q 'failed 0;' || exit 1
tail -1 "$out" | grep -q 'wrong_bytes 0,' || exit 1

# Over stages alone, and both at once.
"$replay" --reshard --ranks 2:4 --stages all | tail -1 | grep -q 'failed 0;'

# A byte that is flipped on the way is noticed, and the page comes once more.
"$replay" --reshard --ranks 4:2 --kind gqa --corrupt 3 | tail -1 | tee "$out"
grep -q 'failed 0;.*wrong_bytes 0, corrupt_detected 3$' "$out"

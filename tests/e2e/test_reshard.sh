#!/usr/bin/env bash
# Pools of every kind, divided over 1, 2, 4 and 8 ranks at either end, exchange pages through two daemons; the program
# knows the expected value of each byte by itself (N3, X5, X7). With TERN_FULL over one and two pipeline stages, too,
# with equal and with different numbers of tokens a page at the two ends.
set -euo pipefail
replay=${TERN_BIN:?}/tern-replay
out=$(mktemp)
trap 'rm -f "$out"' EXIT

stages=1:1
tokens=16:16
[[ ${TERN_FULL:-} ]] && stages=all tokens=all
"$replay" --reshard --stages "$stages" --page-tokens "$tokens" | tee "$out"
tail -1 "$out" | grep -q 'failed 0;' || exit 1
tail -1 "$out" | grep -q 'wrong_bytes 0,' || exit 1

# Over stages alone, and over both.
"$replay" --reshard --ranks 2:4 --stages all | tail -1 | grep -q 'failed 0;'

# Different numbers of tokens a page, over different ranks and over one.
for cells in "2:4 all" "4:1 gqa" "1:1 mha"; do
    read -r ranks kind <<<"$cells"
    "$replay" --reshard --ranks "$ranks" --kind "$kind" --page-tokens all | tail -1 | tee "$out"
    grep -q 'failed 0;.*wrong_bytes 0,' "$out"
done
"$replay" --reshard --ranks 4:2 --kind gqa --page-tokens 64:16 --corrupt 3 | tail -1 | tee "$out"
grep -q 'failed 0;.*wrong_bytes 0, corrupt_detected 3$' "$out"

# Decode follows the sessions of prefill while they are computed (Y4), also with more tokens a page.
for cells in "2:4 16:16 all" "4:2 16:16 all" "4:2 16:64 gqa"; do
    read -r ranks tokens kind <<<"$cells"
    "$replay" --reshard --follow --ranks "$ranks" --page-tokens "$tokens" --kind "$kind" | tail -1 | tee "$out"
    grep -q 'failed 0;.*wrong_bytes 0,' "$out"
done

# A byte flipped on the way is detected, and the page is sent once more.
"$replay" --reshard --ranks 4:2 --kind gqa --corrupt 3 | tail -1 | tee "$out"
grep -q 'failed 0;.*wrong_bytes 0, corrupt_detected 3$' "$out"

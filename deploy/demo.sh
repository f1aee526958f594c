#!/usr/bin/env bash
# Sets Tern up, builds it, and plays a multi-turn workload through a prefill daemon and a decode daemon:
# every page that moves between them is compared byte by byte. Under a minute after the build.
set -euo pipefail
cd "$(dirname "$0")/.."

bash deploy/setup.sh
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "building in $PWD/build ..."
if ! { cmake -S . -B build -G Ninja && cmake --build build -j "$(nproc)" --target ternd tern-replay; } >"$log" 2>&1; then
    tail -n 40 "$log"
    exit 1
fi
echo "8 conversations of 6 turns through two daemons, seed 1:"
rm -f "$log"
exec build/bin/tern-replay --spawn --sessions 8 --turns 6 --seed 1 --profile tiny

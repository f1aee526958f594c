#!/usr/bin/env bash
# Installs Tern's requirements, builds it, and plays a multi-turn workload through a prefill daemon and a decode daemon,
# comparing every page that moves between them byte by byte. Then it plays the workload again with a host tier, in pools
# that are too small for all of it. After the build it takes less than a minute.
set -euo pipefail
cd "$(dirname "$0")/.."

bash deploy/setup.sh --build
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "building in $PWD/build ..."
if ! { cmake -S . -B build -G Ninja && cmake --build build -j "$(nproc)" --target ternd tern-replay; } >"$log" 2>&1; then
    tail -n 40 "$log"
    exit 1
fi
certs=$(mktemp -d)
trap 'rm -rf "$log" "$certs"' EXIT
bash deploy/make-certs.sh "$certs" prefill decode
echo "8 conversations of 6 turns through two daemons that authenticate each other by certificates, seed 1:"
build/bin/tern-replay --spawn --tls "$certs" --sessions 8 --turns 6 --seed 1 --profile tiny
echo
echo "the same, all at once, in pools that hold a fraction of it: prefixes and whole sessions go to host memory and come back:"
build/bin/tern-replay --spawn --tls "$certs" --sessions 8 --turns 6 --seed 1 --profile tiny --concurrency 8 \
    --prefill-tokens 512 --pool-pages 100 --host-pages 600

#!/usr/bin/env bash
# Makes the pictures of README.md in docs/pictures: the views of ternctl and tern-agent of two
# daemons under load. Needs a complete build (tests/run.sh makes one) and Debian's package chromium.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../tests/e2e/with_ternd.sh"
needs chromium "to show the page"
out=$here/pictures
mkdir -p "$out"

free_ports PREFILL_PORT DECODE_PORT
ternd_run prefill --page_bytes_min 4096 --tenant "name=chat,socket=$DIR/prefill/default.sock,memory=64M" \
    --listen "127.0.0.1:$PREFILL_PORT" --insecure_peers --peer "name=decode,address=127.0.0.1:$DECODE_PORT,tenants=chat"
ternd_run decode --page_bytes_min 4096 --tenant "name=chat,socket=$DIR/decode/default.sock,memory=64M" \
    --listen "127.0.0.1:$DECODE_PORT" --insecure_peers --peer "name=prefill,address=127.0.0.1:$PREFILL_PORT,tenants=chat"
"$TERN_BIN/tern-replay" --prefill "$DIR/prefill/default.sock" --decode "$DIR/decode/default.sock" --profile tiny \
    --page-bytes 4096 --sessions 20000 --turns 6 --concurrency 8 --pool-pages 320 --seed 1 >"$DIR/json" 2>"$DIR/err" &
PIDS[replay]=$!
admin=$DIR/decode/admin.sock
full() {
    (($("$CTL" --socket "$admin" status --json | value "j['prefix_nodes']") >= 100))
}
wait_for "a tree" full
"$CTL" --socket "$admin" tree --svg "$out/tree.svg" >/dev/null
sleep 2 # rates are those of the last second

"$TERN_BIN/tern-agent" --listen 127.0.0.1:0 --socket "$admin" 2>"$DIR/agent" &
PIDS[agent]=$!
wait_for "tern-agent" grep -q "listens at" "$DIR/agent"
url=$(sed -n 's/.*listens at \(.*\)\/$/\1\//p' "$DIR/agent")
chromium --headless --no-sandbox --disable-gpu --no-first-run --hide-scrollbars --user-data-dir="$DIR/profile" \
    --window-size=1000,800 --virtual-time-budget=5000 --screenshot="$out/page.png" "$url" >"$DIR/chromium" 2>&1
"$CTL" --socket "$admin" top --once >"$out/top.txt"
kill -0 "${PIDS[replay]}" 2>/dev/null || fail "the load ended before: $(cat "$DIR/json" "$DIR/err")"

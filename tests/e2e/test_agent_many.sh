#!/usr/bin/env bash
# The maximum of 64 tenants, and 64,000 namespaces (--full): a scrape takes less than 50 ms, has no
# more series than its limits allow, and all its queries together keep the daemon's owner thread
# busy for less than 1 ms. Times are judged on a machine at rest.
source "$(dirname "$0")/with_ternd.sh"
[[ -n ${TERN_FULL:-} ]] || skip "64,000 namespaces are scraped with --full alone"
[[ -z $SANITIZE ]] || skip "a sanitizer brings work of its own"
needs python3 "to time requests"
AGENT=$TERN_BIN/tern-agent
[[ -x $AGENT ]] || skip "there is no tern-agent in this build: libmicrohttpd was not found"
TENANTS=64 ENGINES=48 EACH=1334 # the maximum of engines of a daemon
{
    printf 'node: e2e\nworkers: 1\nhuge_pages: false\npage_bytes_min: 512\nadmin: {socket: %s}\n' "$DIR/admin.sock"
    printf 'limits: {namespaces: 70000, engines: %d, pools: 64}\ntenants:\n' $ENGINES
    for ((i = 0; i < TENANTS; i++)); do printf '  - {name: tenant-%02d, socket: %s, memory: 2M}\n' $i "$DIR/$i.sock"; done
} >"$DIR/config.yaml"
"$TERN_BIN/ternd" --config "$DIR/config.yaml" 2>"$DIR/log" &
TERND_PID=$!
ready $TERND_PID "$DIR/log"
mkfifo "$DIR/hold"
for ((i = 0; i < ENGINES; i++)); do
    "$TERN_BUILD/tests/spaces" "$DIR/$i.sock" $EACH <"$DIR/hold" >"$DIR/engine$i" 2>&1 &
    PIDS[engine$i]=$!
done
exec 9>"$DIR/hold"
all_ready() {
    ! grep -hv ready "$DIR"/engine* || fail "an engine"
    [[ $(cat "$DIR"/engine* | grep -c ready) == "$ENGINES" ]]
}
wait_for "the engines" all_ready
"$AGENT" --listen 127.0.0.1:0 --socket "$DIR/admin.sock" 2>"$DIR/agent.out" &
PIDS[agent]=$!
wait_for "tern-agent" grep -q "listens at" "$DIR/agent.out"

python3 - "$(sed -n 's/.*listens at //p' "$DIR/agent.out")metrics" $TERND_PID <<'PY' || fail "a scrape"
import statistics, sys, time, urllib.request

url, owner = sys.argv[1], f"/proc/{sys.argv[2]}/task/{sys.argv[2]}/schedstat"
busy_us = lambda: int(open(owner).read().split()[0]) / 1000


def timed(count, request):
    took = []
    for _ in range(count):
        time.sleep(0.25)  # AGENT_FRESH_MS: each scrape queries the daemon
        before = busy_us()
        start = time.perf_counter()
        text = request()
        took.append(((time.perf_counter() - start) * 1000, busy_us() - before))
    return text, statistics.median(t for t, _ in took), min(b for _, b in took)  # busy: undisturbed


text, ms, us = timed(40, lambda: urllib.request.urlopen(url).read().decode())
_, _, idle_us = timed(40, lambda: time.sleep(ms / 1000))
us -= idle_us  # what the daemon does in any case
lines = [line for line in text.splitlines() if line[0] != "#"]
spaces = [line for line in lines if line.startswith("tern_namespace_prompts_total")]
others = [line for line in spaces if 'namespace="other"' in line]
print(f"scrape: {ms:.1f} ms, {len(lines)} series; owner thread busy {us:.0f} us more than without, in 4 questions")
assert (len(spaces), len(others)) == (164, 64), "100 namespaces, and what is left of each tenant"
prompts = sum(int(line.split()[-1]) for line in spaces)
assert prompts == 48 * 1334, f"each namespace had one prompt: {prompts}"
assert ms < 50 and us < 1000, "a scrape takes too long, or keeps the owner thread for too long"
PY
echo "all passed"

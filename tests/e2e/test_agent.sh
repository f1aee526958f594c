#!/usr/bin/env bash
# tern-agent beside real daemons. Its counters of a workload match the workload's own figures to the token; parsers of
# others read both text forms; health and readiness quickly report a daemon that is missing, hangs, drains or was
# restarted; requests that are too large, too slow or too many do no harm; the page draws the daemon's figures.
source "$(dirname "$0")/with_ternd.sh"
needs python3 "to read figures"
AGENT=$TERN_BIN/tern-agent
[[ -x $AGENT ]] || skip "there is no tern-agent in this build: libmicrohttpd was not found"
! grep -q microhttpd <<<"$LIBRARIES" || fail "ternd speaks HTTP"
PYTHON=$TERN_SOURCE/.venv/bin/python
[[ -x $PYTHON ]] || PYTHON=

free_ports PREFILL_PORT DECODE_PORT
daemon() { # NODE PORT PEER PEER-PORT
    ternd_run "$1" --page_bytes_min 512 --tenant "name=default,socket=$DIR/$1/default.sock,memory=16M,host_memory=16M" \
        --listen "127.0.0.1:$2" --insecure_peers --peer "name=$3,address=127.0.0.1:$4,tenants=default" --deadlines.drain_ms 20000
}
agent_run() { # NAME FLAG...: sets URL
    "$AGENT" --listen 127.0.0.1:0 "${@:2}" 2>"$DIR/$1.out" &
    PIDS[$1]=$!
    wait_for "tern-agent" grep -q "listens at" "$DIR/$1.out"
    URL=$(sed -n 's/.*listens at \(.*\)\/$/\1/p' "$DIR/$1.out")
}
get() { # URL [CURL-OPTION...]: sets STATUS; the body is in $DIR/body
    STATUS=$(curl -s -m 30 -o "$DIR/body" -w '%{http_code}' "${@:2}" "$1") || STATUS="curl $?"
}
says() { # STATUS WORD URL...
    get "${@:3}"
    [[ $STATUS == "$1" && $(cat "$DIR/body") == "$2"* ]] || fail "${*:3}: $STATUS $(head -c 300 "$DIR/body"), not $1 $2"
}
metric() { # NAME{LABELS}: its value in $DIR/body
    awk -v name="$1" '$1 == name { print $2 }' "$DIR/body"
}
needs curl "to ask"

# ---- no daemon
agent_run early --socket "$DIR/decode/admin.sock"
says 503 no_socket "$URL/healthz"
says 503 no_socket "$URL/readyz"
get "$URL/metrics"
[[ $STATUS == 200 && $(metric tern_up) == 0 ]] || fail "metrics without a daemon: $STATUS $(cat "$DIR/body")"

# ---- a workload, counted
daemon prefill "$PREFILL_PORT" decode "$DECODE_PORT"
daemon decode "$DECODE_PORT" prefill "$PREFILL_PORT"
sleep 1.1 # ASK_AGAIN_MS
says 200 ok "$URL/healthz" # the agent finds a daemon that starts later
DECODE_URL=$URL
agent_run prefill_agent --socket "$DIR/prefill/admin.sock" --namespaces 1
PREFILL_URL=$URL
up() { get "$1/metrics" && [[ $(metric 'tern_peers_up') == 1 ]]; }
wait_for "the links" up "$DECODE_URL"
wait_for "the links" up "$PREFILL_URL"
"$TERN_BIN/tern-replay" --prefill "$DIR/prefill/default.sock" --decode "$DIR/decode/default.sock" --profile tiny --page-bytes 512 \
    --sessions 12 --turns 6 --concurrency 1 --pool-pages 2000 --host-pages 2000 --seed 1 --json >"$DIR/json" 2>"$DIR/err" || fail "tern-replay"
tool() { value "j['$1']" <"$DIR/json"; }
[[ $(tool retries) == 0 && $(tool matched_tokens) -gt 0 ]] || fail "the workload is not one that tries it: $(cat "$DIR/json")"
sleep 0.3 # AGENT_FRESH_MS
same() { # WHAT WANTED
    [[ $(metric "$1") == "$2" ]] || fail "$1 is $(metric "$1"), and the replay says $2"
    echo "  $1 = $2"
}
get "$PREFILL_URL/metrics"
same 'tern_prompt_tokens_total{tenant="default"}' "$(tool prompt_tokens)"
same 'tern_matched_tokens_total{tier="device",tenant="default"}' "$(tool matched_tokens)"
same 'tern_fetched_tokens_total{source="peer",tenant="default"}' 0
# ... all of it counted for namespaces, too
[[ $(grep '^tern_namespace_matched_tokens_total{tier="device"' "$DIR/body" | awk '{ n += $2 } END { print n }') == "$(tool matched_tokens)" ]] ||
    fail "namespaces: $(grep tern_namespace "$DIR/body")"
cp "$DIR/body" "$DIR/prefill.metrics"
get "$DECODE_URL/metrics"
same 'tern_prompt_tokens_total{tenant="default"}' "$(tool prompt_tokens)"
same 'tern_transfer_bytes_total{peer="prefill",transport="tcp"}' $((512 * $(tool transferred_pages)))
FOUND=$(grep -E '^tern_(matched|fetched)_tokens_total' "$DIR/body" | awk '{ n += $2 } END { print n }')
[[ $FOUND == $((64 * $(tool prompt_pages))) ]] || fail "decode found $FOUND tokens, and the replay says 64 x $(tool prompt_pages)"
[[ $(metric tern_fetch_seconds_count) -gt 0 && $(metric 'tern_request_seconds_count{request="match"}') -gt 0 ]] || fail "no times"

# ---- parsers of others
if command -v promtool >/dev/null; then
    for file in "$DIR/body" "$DIR/prefill.metrics"; do promtool check metrics <"$file" || fail "promtool check metrics"; done
else
    echo "not done: promtool check metrics needs promtool (package prometheus)"
fi
get "$DECODE_URL/metrics" -H 'Accept: application/openmetrics-text; version=1.0.0,text/plain;q=0.5'
[[ $(tail -n 1 "$DIR/body") == "# EOF" ]] || fail "no OpenMetrics"
if [[ -n $PYTHON ]]; then
    "$PYTHON" - "$DIR/body" "$DIR/prefill.metrics" <<'PY' || fail "prometheus_client does not read it"
import sys
from prometheus_client import openmetrics, parser
from prometheus_client.openmetrics.parser import text_string_to_metric_families as strict
from prometheus_client.parser import text_string_to_metric_families as plain

om = list(strict(open(sys.argv[1]).read()))
assert len(om) > 70 and {f.name: f.unit for f in om}["tern_fetch_seconds"] == "seconds"
for families in (om, list(plain(open(sys.argv[2]).read()))):
    seen = [(s.name, *sorted(s.labels.items())) for f in families for s in f.samples]
    assert len(seen) == len(set(seen)) > 500
print(f"prometheus_client: {len(om)} families")
PY
else
    echo "not done: prometheus_client needs .venv (deploy/setup.sh makes it)"
fi

# ---- the page, with an engine to show
mkfifo "$DIR/hold"
"$TERN_BUILD/tests/holder" hold "$DIR/decode/default.sock" <"$DIR/hold" >"$DIR/holder.out" &
PIDS[holder]=$!
exec 9>"$DIR/hold"
wait_for "an engine" grep -q ready "$DIR/holder.out"
get "$DECODE_URL/state.json"
json "$(cat "$DIR/body")" "(j['agent']['up'] and j['status']['node'] == 'decode' and j['peers']['peers'][0]['peer'] == 'prefill' and
    j['tree']['tree'] and not j['tree']['more'] and len(j['sessions']['sessions']) == 2 and j['transfers']['transfers'] == [])"
cp "$DIR/body" "$DIR/state"
get "$DECODE_URL/" -D "$DIR/head"
grep -qi "^content-security-policy: default-src 'none'" "$DIR/head" || fail "no policy: $(cat "$DIR/head")"
python3 - "$DIR/body" "$DIR/script.js" <<'PY' || fail "the page"
import html.parser, re, sys

class Page(html.parser.HTMLParser):
    open, ids, script, inside = [], set(), "", False
    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        assert not {"src", "href"} & a.keys() - ({"href"} if tag == "a" else set()), f"<{tag}> asks somebody else"
        assert "://" not in str(a), f"<{tag}> leads elsewhere"
        if "id" in a: self.ids.add(a["id"])
        if tag not in ("meta", "link", "br"): self.open.append(tag)
    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}>"
    def handle_data(self, data):
        if self.open and self.open[-1] == "script": self.script += data

text = open(sys.argv[1]).read()
p = Page()
p.feed(text)
assert not p.open, p.open
assert "width=device-width" in text and "@media (max-width: 640px)" in text
assert not re.search(r"innerHTML|insertAdjacent|document\.write|eval", p.script), "names must become text"
used = set(re.findall(r"(?:byId|put)\('(\w+)'", p.script))
assert used and used <= p.ids, used - p.ids
open(sys.argv[2], "w").write(p.script)
PY
if command -v duk >/dev/null; then
    cat >"$DIR/stub.js" <<'JS'
// What of a browser the script uses. It draws state.json once, and the text of what it drew is printed.
function Node(tag) { this.tag = tag; this.kids = []; this.style = {}; this.attrs = {}; this.own = ''; }
Node.prototype.appendChild = function (c) { this.kids.push(c); this.firstChild = this.kids[0]; return c; };
Node.prototype.removeChild = function (c) { this.kids.splice(this.kids.indexOf(c), 1); this.firstChild = this.kids[0]; };
Node.prototype.setAttribute = function (k, v) { this.attrs[k] = v; };
Object.defineProperty(Node.prototype, 'textContent', { set: function (t) { this.own = t; this.kids = []; } });
function textOf(n) { return [n.own].concat(n.kids.map(textOf)).filter(Boolean).join(' '); }
var shown = {}, document = { hidden: false, createElement: function (t) { return new Node(t); },
  getElementById: function (id) { return shown[id] = shown[id] || new Node(id); } };
function setTimeout() {}
function XMLHttpRequest() {}
XMLHttpRequest.prototype.open = function (how, what) { if (what !== 'state.json') throw Error(what); };
XMLHttpRequest.prototype.send = function () { this.responseText = JSON.stringify(STATE); this.onload(); this.onloadend(); };
JS
    drawn() { # STATE-FILE: what the page draws of it
        { cat "$DIR/stub.js"; printf 'var STATE = '; cat "$1"; printf ';\n'; cat "$DIR/script.js"
            printf "\nObject.keys(shown).forEach(function (id) { print(id + ': ' + textOf(shown[id])); });\n"; } >"$DIR/run.js"
        duk "$DIR/run.js" >"$DIR/drawn" 2>&1 || fail "the page's script: $(cat "$DIR/drawn")"
    }
    drawn "$DIR/state"
    for line in "name: Tern: decode" "state: serving for" "alarms: None is on" "peers: .*prefill" "pools: .*default, device, kv" "sessions: .*holder turn 1.0 k 1.0 k" \
        "tiles: .*found of prompts" "tree: .*namespace .* 0\.\.512  8 pages, 8 nodes, device 512\.\.960  7 pages, 7 nodes, device 960\.\.1024  1 page, device, held by device"; do
        grep -q "^$line" "$DIR/drawn" || fail "the page does not show '$line': $(cat "$DIR/drawn")"
    done
    python3 - "$DIR/state" "$DIR/hostile" <<'PY'
import json, sys
j = json.load(open(sys.argv[1]))
session = {"session": "01", "tenant": "<b>t</b>", "engine": "\"'><script>x", "state": "open", "tokens": 12345, "committed": 64, "idle_s": 90}
transfer = {"direction": "in", "peer": "p", "tenant": "t", "stage": "wire", "waits_for": None, "bytes": 2048, "bytes_verified": 1024, "bytes_per_s": 10, "age_s": 1}
j["sessions"] = {"sessions": [session], "more": True}
j["transfers"] = {"transfers": [transfer], "more": False}
j["status"]["alarms"] = [{"name": "quota_reached", "subject": "<i>t</i>", "since_s": 61, "text": "too much", "action": "ask for less"}]
j["status"]["alarms_on"] = 2
json.dump(j, open(sys.argv[2], "w"))
PY
    drawn "$DIR/hostile"
    grep -qF "\"'><script>x open 12.3 k" "$DIR/drawn" || fail "a session: $(cat "$DIR/drawn")"
    grep -q "^transfers: .*in from p t wire - 1.0 KiB of 2.0 KiB" "$DIR/drawn" || fail "a transfer: $(cat "$DIR/drawn")"
    grep -q "^sessions: .*More rows exist" "$DIR/drawn" || fail "more sessions: $(cat "$DIR/drawn")"
    grep -q "^alarms: .*quota_reached <i>t</i> 1 min too much ask for less More rows exist" "$DIR/drawn" || fail "an alarm: $(cat "$DIR/drawn")"
    echo '{"agent":{"up":false,"state":"timed_out"}}' >"$DIR/lost"
    drawn "$DIR/lost"
    grep -q "^state: The daemon does not answer: timed_out" "$DIR/drawn" || fail "a daemon that is gone: $(cat "$DIR/drawn")"
    echo "page: drawn"
else
    echo "not done: running the page's script needs duk (package duktape)"
fi

# ---- requests that the agent does not serve
says 404 "not found" "$DECODE_URL/nothing"
says 405 "only GET" "$DECODE_URL/metrics" -X POST -d x
says 405 "only GET" "$DECODE_URL/metrics" -X DELETE
says 413 "requests to tern-agent must have no body" "$DECODE_URL/metrics" -X GET -d x
for host in evil.example "evil.example:${DECODE_URL##*:}" 192.0.2.1; do # a page whose name resolves to this host
    for path in / /state.json /metrics /healthz; do
        says 421 "the Host of the request is not tern-agent's" "$DECODE_URL$path" -H "Host: $host"
    done
done
says 200 ok "$DECODE_URL/healthz" -H "Host: localhost"
agent_run named --socket "$DIR/decode/admin.sock" --host metrics.example
says 200 ok "$URL/healthz" -H "Host: metrics.example:7003"
says 421 "the Host of the request is not tern-agent's" "$URL/healthz" -H "Host: evil.example"
"$AGENT" --host -x 2>"$DIR/err" && fail "a name that is an option"
grep -q "a host has a name of" "$DIR/err" || fail "--host: $(cat "$DIR/err")"
get "$DECODE_URL/healthz" -I
[[ $STATUS == 200 && $(grep -c ok "$DIR/body") == 0 ]] || fail "HEAD: $STATUS"
get "$DECODE_URL/healthz" -H "X: $(head -c 40000 /dev/zero | tr '\0' x)"
[[ $STATUS == 4* || $STATUS == curl* ]] || fail "40 KB of headers: $STATUS"
says 200 ok "$DECODE_URL/healthz"

# One address may have 16 connections, and each slow one ends after 10 s.
python3 - "${DECODE_URL#http://}" <<'PY' || fail "slow connections"
import socket, sys, time
host, port = sys.argv[1].split(":")
slow = [socket.create_connection((host, int(port))) for _ in range(15)]
for s in slow: s.sendall(b"GET /healthz HTTP/1.1\r\nHost: ")
began = time.monotonic()
def ask():
    with socket.create_connection((host, int(port)), timeout=9) as c:
        c.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return c.recv(4096)
assert b" 200 " in ask(), "15 slow connections keep others out"
ended = 0
while ended < len(slow) and time.monotonic() - began < 120:
    time.sleep(0.5)
    ended = 0
    for s in slow:
        try:
            s.sendall(b"x")
            s.setblocking(False)
            ended += s.recv(1) == b""
        except BlockingIOError:
            pass
        except OSError:
            ended += 1
        finally:
            s.setblocking(True)
took = time.monotonic() - began
assert ended == len(slow) and took > 9, f"{ended} ended in {took:.1f} s"
print(f"slow connections: ended after {took:.1f} s")
PY

# ---- a daemon that hangs, drains, ends, and starts again
get "$DECODE_URL/metrics"
BEFORE=$(metric tern_start_time_seconds)
kill -STOP "${PIDS[decode]}"
sleep 0.3
START=${EPOCHREALTIME/./}
says 503 timed_out "$DECODE_URL/readyz"
FIRST_MS=$(((${EPOCHREALTIME/./} - START) / 1000))
[[ $FIRST_MS -ge 900 ]] || fail "a daemon that hangs is told of in $FIRST_MS ms"
for _ in 1 2 3 4 5; do says 503 timed_out "$DECODE_URL/healthz"; done # known already, so the daemon is not asked
MOST=$((1 + (${EPOCHREALTIME/./} - START) / 2000000)) # a query waits 1 s, and the next one follows 1 s later
kill -CONT "${PIDS[decode]}"
sleep 1.1
says 200 ready "$DECODE_URL/readyz"
"$CTL" --socket "$DIR/decode/admin.sock" drain --json >/dev/null
sleep 0.3
says 503 draining "$DECODE_URL/readyz"
says 200 ok "$DECODE_URL/healthz"
get "$DECODE_URL/metrics"
[[ $(metric tern_draining) == 1 && $(metric tern_sessions) == 2 && $(metric tern_start_time_seconds) == "$BEFORE" ]] || fail "draining: $(cat "$DIR/body")"
kill -9 "${PIDS[decode]}" "${PIDS[holder]}"
wait "${PIDS[decode]}" "${PIDS[holder]}" 2>/dev/null || true
sleep 0.3
says 503 "" "$DECODE_URL/readyz"
grep -qxE 'nobody_listens|no_socket' "$DIR/body" || fail "a daemon that was killed: $(cat "$DIR/body")"
daemon decode "$DECODE_PORT" prefill "$PREFILL_PORT"
sleep 1.1
get "$DECODE_URL/metrics"
[[ $(metric tern_up) == 1 && $(metric tern_start_time_seconds) != "$BEFORE" && $(metric 'tern_prompt_tokens_total{tenant="default"}') == 0 ]] ||
    fail "a daemon that was started anew: $(head -n 40 "$DIR/body")"
TIMED_OUT=$(metric 'tern_agent_question_failures_total{reason="timed_out"}')
[[ $TIMED_OUT -ge 1 && $TIMED_OUT -le $MOST ]] || fail "not 1 to $MOST failures: $(grep failures "$DIR/body")"
echo "a daemon that hangs: 503 after $FIRST_MS ms, asked $TIMED_OUT times"
kill -9 "${PIDS[decode]}"
wait "${PIDS[decode]}" 2>/dev/null || true
daemon decode "$DECODE_PORT" prefill "$PREFILL_PORT"
says 200 ready "$DECODE_URL/readyz" # the agent's connection was to the daemon before

# ---- its command line, and its end
ends 2 "takes a number" "$AGENT" --tenants 65
ends 2 "one argument too many" "$AGENT" x
ends 2 "takes ADDRESS:PORT" "$AGENT" --listen somewhere:1
ends 2 "a port of at most 65535" "$AGENT" --listen 127.0.0.1:70000
ends 1 "ddress already in use" "$AGENT" --listen "${DECODE_URL#http://}"
kill "${PIDS[prefill_agent]}"
RC=0
wait "${PIDS[prefill_agent]}" || RC=$?
[[ $RC == 0 ]] || fail "SIGTERM: exit status $RC"
echo "all passed"

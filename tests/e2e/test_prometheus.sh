#!/usr/bin/env bash
# Prometheus scrapes a replay (--full): two daemons with every part that has metrics (TLS, a disk
# tier, a host tier, turn records) and an agent each. Every expression of the alert rules and the
# dashboard must have series, and no alert is raised.
source "$(dirname "$0")/with_ternd.sh"
[[ -n ${TERN_FULL:-} ]] || skip "expressions are tried on a running Prometheus with --full alone"
needs prometheus "to scrape (package prometheus)"
needs openssl "to make certificates"
AGENT=$TERN_BIN/tern-agent
[[ -x $AGENT ]] || skip "there is no tern-agent in this build: libmicrohttpd was not found"
PYTHON=$TERN_SOURCE/.venv/bin/python # PyYAML
[[ -x $PYTHON ]] || skip "there is no $TERN_SOURCE/.venv (deploy/setup.sh makes it)"

free_ports A B WEB AGENT_A AGENT_B
bash "$TERN_SOURCE/deploy/make-certs.sh" "$DIR/certs" prefill decode >"$DIR/out" 2>&1 || fail "certificates"
daemon() { # NODE PORT PEER PEER-PORT AGENT-PORT
    mkdir -p "$DIR/$1/spill"
    ternd_run "$1" --page_bytes_min 512 --listen "127.0.0.1:$2" --peer "name=$3,address=127.0.0.1:$4,tenants=default" \
        --tenant "name=default,socket=$DIR/$1/default.sock,memory=16M,host_memory=16M,record_memory=1M" \
        --tls.ca "$DIR/certs/ca.pem" --tls.cert "$DIR/certs/$1.pem" --tls.key "$DIR/certs/$1.key" \
        --spill.dir "$DIR/$1/spill" --spill.bytes 64M --spill.headroom 1M
    "$AGENT" --listen "127.0.0.1:$5" --socket "$DIR/$1/admin.sock" 2>"$DIR/$1.out" &
    PIDS[agent_$1]=$!
}
daemon prefill "$A" decode "$B" "$AGENT_A"
daemon decode "$B" prefill "$A" "$AGENT_B"

sed "s/for: .*/for: 0s/" "$TERN_SOURCE/deploy/prometheus/rules.yaml" >"$DIR/rules.yaml" # alerts are raised at once
cat >"$DIR/prometheus.yaml" <<YAML
global: {scrape_interval: 500ms, evaluation_interval: 1s}
rule_files: [$DIR/rules.yaml]
scrape_configs:
  - job_name: tern
    static_configs: [{targets: ["127.0.0.1:$AGENT_A", "127.0.0.1:$AGENT_B"]}]
YAML
mkdir "$DIR/tsdb"
prometheus --config.file "$DIR/prometheus.yaml" --storage.tsdb.path "$DIR/tsdb" --web.listen-address "127.0.0.1:$WEB" \
    >"$DIR/prometheus.out" 2>&1 &
PIDS[prometheus]=$!
answers() { curl -sf "http://127.0.0.1:$WEB/api/v1/query?query=count(tern_up==1)" | grep -q '"2"'; }
wait_for "two scrapes" answers

# Some series exist only while something runs: pools, sessions, and fetches that are cut down to the pool's room.
for seed in 1 2 3; do
    "$TERN_BIN/tern-replay" --prefill "$DIR/prefill/default.sock" --decode "$DIR/decode/default.sock" --profile tiny --page-bytes 512 \
        --sessions 40 --turns 20 --pool-pages 800 --host-pages 800 --tickets --seed "$seed" --json >"$DIR/json" 2>"$DIR/err" ||
        fail "tern-replay"
done &
REPLAY=$!
"$PYTHON" - "$TERN_SOURCE/deploy/prometheus" "http://127.0.0.1:$WEB/api/v1/query" <<'PY' || fail "expressions"
import json, pathlib, re, sys, time, urllib.parse, urllib.request, yaml

folder, url = pathlib.Path(sys.argv[1]), sys.argv[2]
rules = [r for g in yaml.safe_load((folder / "rules.yaml").read_text())["groups"] for r in g["rules"]]
dashboard = json.loads((folder / "dashboard.json").read_text())


def ask(expression):
    query = urllib.parse.urlencode({"query": expression})
    return json.load(urllib.request.urlopen(f"{url}?{query}"))["data"]["result"]


def compared(expression):
    """A comparison leaves out what it is not true of: with `bool` it has all series."""
    return re.sub(r" (==|!=|<=|>=|<|>) ", r" \1 bool ", expression)


left = {r["alert"]: compared(r["expr"]) for r in rules}
for panel in dashboard["panels"]:
    for t in panel["targets"]:
        e = t["expr"].replace('"$instance"', '".*"').replace("$__rate_interval", "1m")
        left[f"{panel['title']} {t['refId']}"] = e
n = len(left)
assert n > 40
assert not ask("tern_no_such_metric > bool 0"), "an expression of nothing is empty"
until = time.monotonic() + 60
while left and time.monotonic() < until:
    left = {name: e for name, e in left.items() if not ask(e)}
    time.sleep(0.5)
for name, e in left.items():
    print(f"{name} is empty: {e}")
print(f"{n - len(left)} of {n} expressions have series")
sys.exit(bool(left))
PY
wait "$REPLAY" || fail "tern-replay: $(cat "$DIR/err")"
# A pool of 800 pages is meant to refuse, so alerts of refusals are expected.
alerts=$(curl -sf "http://127.0.0.1:$WEB/api/v1/alerts" |
    value "sorted({a['labels']['alertname'] + ' ' * ('name' in a['labels']) + a['labels'].get('name', '') for a in j['data']['alerts']} - {'TernTenantRefused', 'TernPoolFull', 'TernAlarm memory_exhausted'})")
[[ $alerts == "[]" ]] || fail "alerts of a workload that is well: $alerts"
echo "all passed"

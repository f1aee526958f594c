#!/usr/bin/env bash
# ternctl against a real daemon: every command with its table, its JSON and its errors.
source "$(dirname "$0")/with_ternd.sh"

needs python3 "to check the JSON"

# json_holds TEXT EXPRESSION: JSON without an end
json_holds() {
    python3 -c 'import json, sys; j = json.loads(sys.argv[1]); sys.exit(not eval(sys.argv[2]))' "$1" "$2"
}

# wrong STATUS PATTERN COMMAND...: ends with that status, and prints on standard error alone
wrong() {
    local status=$1 pattern=$2 rc=0
    shift 2
    "$@" >"$DIR/stdout" 2>"$DIR/stderr" || rc=$?
    [[ $rc == "$status" ]] || fail "$*: exit status $rc, not $status"
    grep -qi -- "$pattern" "$DIR/stderr" || fail "$*: no '$pattern' in: $(cat "$DIR/stderr")"
    [[ ! -s $DIR/stdout ]] || fail "$*: standard output is not empty"
}

DRAIN_MS=45000 # the drain ends with the last session, not before the queries made during it
ternd_start "    host_memory: 16M
    host_write_through: true
    record_memory: 1M
peers:
  - name: other
    address: 127.0.0.1:1
    tenants: [t0]
insecure_peers: true" 16M 1

# An engine with something to show: a fifo keeps it open while ternctl queries.
HOLD=$TERN_BUILD/tests/holder
mkfifo "$DIR/hold"
"$HOLD" hold "$SOCKET" <"$DIR/hold" >"$DIR/holder.out" &
HOLDER=$!
exec 9>"$DIR/hold"
wait_for "the engine" grep -q ready "$DIR/holder.out"

# ---- status: the documented keys, and counts that add up
S=$("$CTL" status --json)
for key in incarnation uptime_s pools sessions prefix_nodes peers transfers_active errors; do
    json "$S" "'$key' in j"
done
json "$S" "len(j['pools']) == 1 and all(sum(g[k] for k in ('free', 'leased', 'session', 'snapshot', 'reclaimable',
 'transfer', 'ticket', 'retiring', 'zeroing', 'quarantine')) == g['total'] and g['total'] > 0 for g in j['pools'])"
json "$S" "j['sessions'] == 2 and j['peers'] == 1 and j['engines'] == 1"
json "$S" "j['pools'][0]['snapshot'] == 8 + 3 * 8" # the shared 512 tokens once, 3 tails, 64 tokens a page
json "$S" "set(j['errors']) >= {'INVALID', 'GONE', 'POOL_EXHAUSTED', 'BUSY', 'QUOTA', 'INTERNAL'}"
T=$("$CTL" status)
grep -q "kv" <<<"$T" || fail "status names no group: $T"
grep -q "without TLS" <<<"$T" || fail "status does not warn: $T"
grep -q "level=warn event=insecure_peers reason=.*without TLS" "$DIR/log" || fail "the log does not warn"
RAILS=$(sed -n 's/.*event=rdma rails=\([0-9]*\).*/\1/p' "$DIR/log")
[[ $(grep -c "event=rail " "$DIR/log") == "${RAILS:-0}" ]] || fail "the log does not show each rail once"
grep -q "memory 16.0 MiB (memfd) + host 16.0 MiB + records 1.0 MiB, huge pages 0 B" <<<"$T" ||
    fail "status leaves the host's out: $T"
grep -q "^  turn records of t0: 0, in 0 of 64 pages of 16.0 KiB$" <<<"$T" || fail "status has no turn records: $T"
json "$S" "j['tenants'] == [{'tenant': 't0', 'records': {'pages': 64, 'used': 0, 'held': 0, 'records': 0, 'page_bytes': 16384}, 'tickets': {'standing': 0, 'made': 0, 'taken': 0, 'dropped': 0, 'expired': 0, 'ended': 0}, 'spill': None}]"
json "$S" "j['spill'] is None"
grep -q "^  no disk tier$" <<<"$T" || fail "status does not say that there is no disk tier: $T"
json "$("$CTL" disk --json)" "j['disk'] == [] and j['spill'] is None"
ends 0 "nothing is stored" "$CTL" disk
json "$S" "j['memory']['record_bytes'] == 1 << 20"
grep -q "host tier 16.0 MiB reserved, no pool uses it" <<<"$T" || fail "status does not say what is reserved: $T"

# ---- why a tenant is refused: another engine of that name, while the first one lives
"$HOLD" hold "$SOCKET" </dev/null >/dev/null 2>&1 && fail "a second engine of one name joined"
json "$("$CTL" status --json)" "[(r['tenant'], r['errors']['CONFLICT'], r['last'], r['last_op']) for r in j['refusals']] == \
 [('t0', 1, 'CONFLICT', 'join')]"
ends 0 "last .* ago: join, CONFLICT" "$CTL" status

# ---- lists
json "$("$CTL" pools --json)" "len(j['pools']) == 1 and j['pools'][0]['groups'][0]['group'] == 'kv'"
json "$("$CTL" sessions --json)" "len(j['sessions']) == 2 and all(s['committed'] == 1024 for s in j['sessions'])"
json "$("$CTL" sessions --json)" "all((s['records'], s['recorded']) == (0, 0) for s in j['sessions'])"
json "$("$CTL" records --json)" "j['records'] == [] and [t['records']['pages'] for t in j['tenants']] == [64]"
ends 0 "^turn records of t0: 0, in 0 of 64 pages" "$CTL" records
ends 0 "no session has turn records" "$CTL" records
json "$("$CTL" engines --json)" "j['engines'][0]['name'] == 'holder' and j['engines'][0]['done_step'] == [3] and \
 j['engines'][0]['pids'] == [$HOLDER]"
grep -q "event=engine_joined engine=holder tenant=t0 world=1" "$DIR/log" || fail "the log does not tell who joined"
json "$("$CTL" peers --json)" "j['peers'][0]['peer'] == 'other' and j['peers'][0]['state'] != 'up'"
json "$("$CTL" transfers --json)" "j['transfers'] == []"
json "$("$CTL" ping --count 3 --json)" "j['count'] == 3 and 0 < j['us_min'] <= j['us_mean'] <= j['us_max']"
json "$("$CTL" tree --json)" "sum(n['pages'] for n in j['tree']) == 32"
[[ $("$CTL" peers) != *0000000000000000* ]] || fail "a peer that was never up has an incarnation"
[[ $("$CTL" peers) != *" push"* ]] || fail "a peer that is pulled from pushes"
for command in pools sessions engines peers; do
    [[ $("$CTL" $command | wc -l) -ge 2 ]] || fail "$command shows no table"
done
ends 0 "no transfer" "$CTL" transfers

# ---- rows by tenant, engine and peer; a meaningless filter is refused by its name
for list in pools sessions engines; do
    json "$("$CTL" $list --tenant t0 --engine holder --json)" "len(j['$list']) == (2 if '$list' == 'sessions' else 1)"
    json "$("$CTL" $list --engine nobody --json)" "j['$list'] == []"
    wrong 1 "no tenant is called 'nobody'" "$CTL" $list --tenant nobody
    wrong 2 "unrecognized option '--peer'" "$CTL" $list --peer other
done
json "$("$CTL" peers --peer other --tenant t0 --json)" "[p['peer'] for p in j['peers']] == ['other']"
json "$("$CTL" transfers --peer other --tenant t0 --json)" "j['transfers'] == []"
json "$("$CTL" namespaces --tenant t0 --json)" "len(j['namespaces']) > 0"
json "$("$CTL" tickets --engine holder --json)" "j['tickets'] == []"
wrong 1 "no peer is called 'nobody'" "$CTL" peers --peer nobody
wrong 2 "unrecognized option '--engine'" "$CTL" transfers --engine holder

# ---- tree: the shared part is one line, then the three branches; two sessions pin the ends of two of them
TREE=$("$CTL" tree --wide)
[[ $(grep -c ' 0\.\.512 *8 *8 *0' <<<"$TREE") == 1 ]] || fail "the shared prefix is not one line: $TREE"
[[ $(grep -c ' 512\.\.' <<<"$TREE") == 3 ]] || fail "not three branches: $TREE"
[[ $(grep -c '\.\.1024 *1 *1 *0 .* device holder [0-9]' <<<"$TREE") == 2 ]] || fail "not two held ends: $TREE"
[[ $(grep -c ' 512\.\.1024 *8 *8 *0' <<<"$TREE") == 1 ]] || fail "the closed branch is not one line: $TREE"
POOL=$("$CTL" pools --json | value "j['pools'][0]['pool']")
[[ $("$CTL" tree --pool "$POOL") == *0..512* && $("$CTL" tree --pool 0) == *0..512* ]] || fail "tree --pool"

# ---- no colour in a pipe, colour on a terminal, none with NO_COLOR
! grep -q $'\033' <<<"$T" || fail "colour in a pipe"
if command -v script >/dev/null; then
    OUT=$(script -qec "$CTL status" /dev/null </dev/null)
    [[ $OUT == *$'\033['* ]] || fail "no colour on a terminal"
    OUT=$(NO_COLOR=1 script -qec "$CTL status" /dev/null </dev/null)
    [[ $OUT != *$'\033['* ]] || fail "NO_COLOR is ignored"
    OUT=$(TERM=dumb script -qec "$CTL status" /dev/null </dev/null)
    [[ $OUT != *$'\033['* ]] || fail "colour on a terminal that has none"
fi

# ---- evict: unpinned nodes go, those of sessions stay, and so do nodes that are being sealed.
sealed() {
    json_holds "$("$CTL" tree --json)" "all(n['sealed'] for n in j['tree'] if n['depth'] > 0)"
}
wait_for "the seals" sealed
json "$("$CTL" status --json)" "[g['evictable'] for g in j['pools']] == [8]" # the branch that no session pins
ends 0 "QUARANTINE  *LIVE  *EVICTABLE$" "$CTL" status
ends 0 "  2 %  *8$" "$CTL" status
json "$("$CTL" tenants --json)" "[(t['tenant'], t['engines'], t['sessions'], t['device']['evictable_bytes'],
 t['device']['live_bytes'], t['host']['bytes']) for t in j['tenants']] == [('t0', 1, 2, 8 * 4096, 24 * 4096, 0)]"
json "$("$CTL" tenants --json)" "{'nodes', 'prompts', 'prompt_tokens', 'found_tokens'} <= j['tenants'][0].keys()"
ends 0 "^t0  *1  *2 .* 96.0 KiB  *32.0 KiB  *0 B  *33.3 %$" "$CTL" tenants
json "$("$CTL" evict --pool "$POOL" --nodes 1 --json)" "j['nodes'] >= 1 and j['pages'] >= 1"
json "$("$CTL" evict --json)" "j['pages'] >= 0"
json "$("$CTL" status --json)" "j['pools'][0]['snapshot'] == 8 + 2 * 8 and j['pools'][0]['evictable'] == 0"
ends 0 "evicted 0 nodes" "$CTL" evict

# ---- tape
json "$("$CTL" tape "$DIR/a.tape" --json)" "j['recorded'] > 0"
OUT=$(cd "$DIR" && "$CTL" tape b.tape)
[[ $OUT == "$DIR/b.tape: "* ]] || fail "a relative path: $OUT"
[[ -s $DIR/a.tape && -s $DIR/b.tape ]] || fail "no tape was written"
wrong 1 "path" "$CTL" tape /nowhere/at/all.tape

# ---- a host tier: retracted sessions, prefixes on both tiers, pins
mkfifo "$DIR/away"
"$HOLD" away "$SOCKET" <"$DIR/away" >"$DIR/away.out" &
AWAY=$!
exec 8>"$DIR/away"
copied() {
    HOST=$("$CTL" status --json)
    grep -q ready "$DIR/away.out" && json_holds "$HOST" "j['host_tier']['host_copies'] == 32 and j['host_tier']['copies'] == 0"
}
wait_for "the copies" copied
json "$HOST" "j['host_tier']['retracts'] == 2 and j['host_tier']['bytes'] > 0"
json "$HOST" "sorted((g['tier'], g['group'], g['snapshot']) for g in j['pools']) == [('device', 'kv', 24), ('device', 'kv', 32), ('host', 'kv', 32)]"
json "$HOST" "all(sum(g[k] for k in ('free', 'leased', 'session', 'snapshot', 'reclaimable',
 'transfer', 'ticket', 'retiring', 'zeroing', 'quarantine')) == g['total'] for g in j['pools'])"
json "$("$CTL" pools --json)" "sorted(g['borrowed'] for p in j['pools'] for g in p['groups']) == [0, 0, 24]"
json "$("$CTL" pools --json)" "all(p['other_tier'] in [q['pool'] for q in j['pools']] for p in j['pools'] if p['slot'] > 0)"
S=$("$CTL" sessions --json)
json "$S" "sorted(s['ref'] for s in j['sessions'] if s['state'] == 'retracted') == ['host', 'retracted']"
json "$S" "all(s['ref'] == 'device' for s in j['sessions'] if s['engine'] == 'holder')"
ends 0 "retracted .*host  *[0-9]" "$CTL" sessions --wide
DEVICE=$("$CTL" pools --json | value "[p['pool'] for p in j['pools'] if (p['engine'] or '').startswith('away') and p['tier'] == 'device'][0]")
TREE=$("$CTL" tree --pool "$DEVICE" --json)
json "$TREE" "sum(n['tier'] == 'both' for n in j['tree']) == 33 and sum(n['host_pages'] for n in j['tree']) == 32"
json "$TREE" "sorted((h['kind'], h['who']) for n in j['tree'] for h in n['holders']) == [('host', 'away <&>'), ('retracted', 'away <&>')]"
json "$TREE" "all(len(n['chain']) == 16 for n in j['tree']) and len(set(n['chain'] for n in j['tree'])) == 33"
AWAY_NODE=$(value "[n['id'] for n in j['tree'] if n['refs']['host'] == 1][0]" <<<"$TREE")
FREE_NODE=$(value "[n['id'] for n in j['tree'] if n['depth'] == 1024 and not n['holders']][0]" <<<"$TREE")
ends 0 "$AWAY_NODE  *host away <&> [0-9]" "$CTL" tree --wide --pool "$DEVICE"

json "$("$CTL" pin "$FREE_NODE" --json)" "j['refs'] == 1"
ends 0 "operators: 2" "$CTL" pin "$FREE_NODE"
json "$("$CTL" evict --pool "$DEVICE" --nodes 8 --json)" "j['nodes'] == 8" # from the device; without a number the host copies go, too
TREE=$("$CTL" tree --pool "$DEVICE" --json)
# Nodes pinned on the device stay there; the branch of the session retracted to the host is on the host only.
json "$TREE" "sorted(set((n['tier'], n['depth'] > 512) for n in j['tree'])) == [('both', False), ('both', True), ('host', True)]"
json "$TREE" "sum(n['tier'] == 'host' for n in j['tree']) == 8 and sum(n['pages'] for n in j['tree']) == 24"
json "$TREE" "[(h['kind'], n['refs']['admin']) for n in j['tree'] for h in n['holders'] if n['id'] == '$FREE_NODE'] == [('admin', 2)]"
ends 0 "admin x2 [0-9]" "$CTL" tree
wrong 1 "on the host tier alone\|device" "$CTL" pin "$AWAY_NODE"
wrong 1 "no such node" "$CTL" pin 7777777700000001
wrong 2 "'zork' is not a node" "$CTL" pin zork
"$CTL" unpin "$FREE_NODE" >/dev/null
json "$("$CTL" unpin "$FREE_NODE" --json)" "j['refs'] == 0"
wrong 1 "unpin: " "$CTL" unpin "$FREE_NODE"

# ---- the drawing: well-formed, escaped, a cell a line of the table, tiers by colour, resume points
# marked
json "$("$CTL" tree --svg "$DIR/tree.svg" --json)" "j['cells'] > 0 and j['folded_nodes'] == 0"
python3 - "$DIR/tree.svg" "$("$CTL" tree --json)" <<'PY' || fail "the drawing: $(cat "$DIR/tree.svg")"
import json, sys
import xml.etree.ElementTree as et
root, tree = et.parse(sys.argv[1]).getroot(), json.loads(sys.argv[2])["tree"]
ns = "{http://www.w3.org/2000/svg}"
cells = [r for r in root.iter(ns + "rect") if r.find(ns + "title") is not None]
legend = {t.text: r.get("fill") for r, t in zip([r for r in root.iter(ns + "rect") if r.get("y") == "73"],
                                                 [t for t in root.iter(ns + "text") if t.get("class") == "l"])}
tiers = {c.get("fill"): c.find(ns + "title").text.split("tier ")[1].split("\n")[0].split(",")[0] for c in cells}
assert {tiers[legend[k]] for k in ("on the device", "on the host", "on both")} == {"device", "host", "both"}, tiers
ids = [c.find(ns + "title").text.split("node ")[1].split("\n")[0] for c in cells]
assert len(set(ids)) == len(ids) and set(ids) <= {n["id"] for n in tree}
assert any("host away <&>" in (t.text or "") for t in root.iter(ns + "text")), "nobody is named"
marks = [c for c in root.iter(ns + "circle")]
assert len(marks) - 1 == sum("resume point" in c.find(ns + "title").text for c in cells) > 0
def pages(c):
    words = c.find(ns + "title").text.replace(",", "").split()
    return max(int(words[words.index("pages") - 1]), int(words[words.index("host") - 1]))
scale = {float(c.get("width")) / pages(c) for c in cells}
assert max(scale) - min(scale) < 0.2, scale # widths are in the ratio of the pages
PY
wrong 1 "nowhere" "$CTL" tree --svg /nowhere/tree.svg
echo >&8
wait_for "the sessions" grep -q back "$DIR/away.out"
json "$("$CTL" sessions --json)" "all(s['ref'] == 'device' and s['state'] != 'retracted' for s in j['sessions'])"
json "$("$CTL" status --json)" "j['host_tier']['host_loads'] == 8 and j['host_tier']['recovers'] == 2"
ends 0 "host tier 4.0 MiB of 16.0 MiB: 32 nodes copied" "$CTL" status
HOST_SLOT=$("$CTL" pools --json | value "[p['slot'] for p in j['pools'] if p['tier'] == 'host'][0]")
wrong 1 "pool $HOST_SLOT is the host tier of pool 1: use evict --pool 1, " "$CTL" evict --pool "$HOST_SLOT"
json "$("$CTL" status --json)" "[g['snapshot'] for g in j['pools'] if g['tier'] == 'host'] == [32]" # nothing was evicted
# The branch that no session pins leaves both tiers; pinned nodes of the device stay on the host, too.
ends 0 "evicted 16 nodes: 8 pages of the device and 8 of the host tier" "$CTL" evict --pool "$DEVICE"
json "$("$CTL" status --json)" "[g['snapshot'] for g in j['pools'] if g['tier'] == 'host'] == [24]"
json "$("$CTL" tree --pool "$DEVICE" --json)" "all(n['tier'] == 'both' for n in j['tree'] if n['depth'] > 0)"
json "$("$CTL" evict --json)" "(j['nodes'], j['pages'], j['host_pages']) == (0, 0, 0)"
exec 8>&-
wait "$AWAY" || fail "the second engine: $?"

# ---- errors are printed, with the remedy
wrong 3 "is ternd running" "$CTL" --socket "$DIR/nobody.sock" status
wrong 1 "tenant's socket" "$CTL" --socket "$SOCKET" status
wrong 2 "no command" "$CTL" frobnicate
wrong 2 "number" "$CTL" evict --nodes many
wrong 2 "missing" "$CTL" tape
wrong 2 "missing" "$CTL" pin
wrong 2 "too many" "$CTL" status now
wrong 1 "ternctl pools" "$CTL" evict --pool 77
wrong 3 "that is not a socket" "$CTL" --socket "$DIR/config.yaml" status
wrong 1 "no change since the daemon's start has that number" "$CTL" watch --from 5000000000
# refused STATUS ERROR PATTERN COMMAND...: with --json the error is an object, too
refused() {
    local status=$1 error=$2 pattern=$3 rc=0
    shift 3
    "$@" --json >"$DIR/stdout" 2>"$DIR/stderr" || rc=$?
    [[ $rc == "$status" ]] || fail "$* --json: exit status $rc, not $status"
    json "$(cat "$DIR/stdout")" "list(j) == ['error', 'text'] and j['error'] == '$error' and '$pattern' in j['text']"
    [[ $(cat "$DIR/stderr") == *"ternctl: "*"$pattern"* || $error$pattern == USAGEthe* && -s $DIR/stderr ]] || fail "$* --json: $(cat "$DIR/stderr")"
}
refused 1 GONE "no such node" "$CTL" pin 7777777700000001
refused 1 DISK "the tape cannot be written" "$CTL" tape /nowhere/at/all.tape
refused 1 DENIED "is a tenant" "$CTL" --socket "$SOCKET" status
refused 1 FAILED "no open pool" "$CTL" evict --pool 77
refused 2 USAGE "is not a node" "$CTL" pin zork
refused 2 USAGE "the command line is wrong" "$CTL" pin
refused 2 USAGE "the command line is wrong" "$CTL" pools --zork
refused 2 USAGE "the command line is wrong" "$CTL" frobnicate
wrong 2 "log-level was retired: set log_level in the configuration" "$CTL" log-level debug
refused 2 USAGE "the command line is wrong" "$CTL" evict --nodes many
refused 3 UNREACHABLE "is ternd running" "$CTL" --socket "$DIR/nobody.sock" status
json "$("$CTL" --socket /$'\xff' status --json 2>/dev/null || true)" "j['text'].startswith(r'/\xff: there is no such socket')" # JSON is UTF-8
COMMANDS=$("$CTL" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p')
(($(wc -w <<<"$COMMANDS") >= 16)) || fail "--help lists only: $COMMANDS"
for command in $COMMANDS; do
    HELP=$("$CTL" $command --help)
    [[ $HELP == *"ternctl $command"* && $HELP == *Examples:* && $HELP == *--json* ]] || fail "$command --help"
    ends 0 "^  $command " "$CTL" --help
done
[[ $("$CTL" --help | sed '1,/^Commands:/d; /^$/,$d' | grep -vc '^  ') == 0 ]] || fail "a line of --help is broken in two"

# ---- a cancelled drain: the waiting command is notified, and new sessions are accepted
"$CTL" drain --wait >"$DIR/stdout" 2>"$DIR/stderr" 9>&- &
WAIT=$!
wait_for "the drain" grep -q event=draining "$DIR/log"
json "$("$CTL" undrain --json)" "j['draining'] is False and (j['sessions'], j['left_ms']) == (2, 0)"
rc=0
wait "$WAIT" || rc=$?
[[ $rc == 4 ]] || fail "drain --wait: exit status $rc, not 4"
grep -q "undone with 2 sessions open" "$DIR/stdout" || fail "drain --wait: $(cat "$DIR/stdout")"
grep -q "event=operator_done act=drain .*result=\"2 sessions, taken back\"" "$DIR/log" || fail "the log does not tell it"
echo | "$HOLD" away "$SOCKET" >/dev/null || fail "no new session after undrain"
ends 0 "accepts new sessions; 2 are open" "$CTL" undrain # repeating it does no harm
wrong 2 "--wait takes a time" "$CTL" drain --wait=soon
ends 4 "the wait ended, and the daemon is still draining" "$CTL" drain --wait=1s
refused 4 LEFT "the wait ended" "$CTL" drain --wait=1s

# ---- the deadline comes first
ternd_run brief --deadlines.drain_ms 2000 --tenant "name=t0,socket=$DIR/brief0.sock,memory=16M"
"$HOLD" hold "$DIR/brief0.sock" <"$DIR/hold" >"$DIR/brief.out" 9>&- &
BRIEF=$!
wait_for "its engine" grep -q ready "$DIR/brief.out"
ends 4 "the deadline passed with 2 sessions open" "$CTL" --socket "$DIR/brief/admin.sock" drain --wait
wait "${PIDS[brief]}" || fail "the daemon with a deadline: $?"
unset "PIDS[brief]"

# ---- drain, last: it is final. A command whose daemon leaves exits with 3, and names no library.
"$CTL" watch >"$DIR/stdout" 2>"$DIR/stderr" 9>&- & # or the holder waits for it
WATCH=$!
wait_for "watch" grep -q "waiting for changes" "$DIR/stderr"
JSON=$("$CTL" drain --json)
OUT=$("$HOLD" hold "$SOCKET" </dev/null 2>&1) && fail "an engine connected to a daemon that drains"
grep -q "BUSY.*draining: connect to another one" <<<"$OUT" || fail "connecting while it drains: $OUT"
ends 0 "2 still open .* exits after the last, in [0-9.]* s at the latest" "$CTL" drain
json "$JSON" "j['draining'] is True and j['sessions'] == 2 and j['drain_ms'] == 45000"
"$CTL" drain --wait --json >"$DIR/drained" 2>/dev/null 9>&- &
WAIT=$!
LEFT=$(tr -dc '0-9' <<<"$(grep left_ms <<<"$JSON")")
json "$("$CTL" drain --json)" "0 < j['left_ms'] < $LEFT"
OUT=$("$CTL" status)
grep -q draining <<<"$OUT" || fail "status does not say that it drains"
exec 9>&-
wait "$HOLDER" || true
wait "$BRIEF" || true
wait "$WAIT" || fail "drain --wait: exit status $?, not 0"
json "$(cat "$DIR/drained")" "j['draining'] is True and j['sessions'] == 0"
wait "$TERND_PID" || fail "exit status $?, not 0"
TERND_PID=
rc=0
wait "$WATCH" || rc=$?
[[ $rc == 3 ]] || fail "watch: exit status $rc, not 3"
grep -q "watch: the daemon closed the connection; its log has the cause" "$DIR/stderr" || fail "watch: $(cat "$DIR/stderr")"
echo "ternctl: ok"

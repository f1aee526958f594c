#!/usr/bin/env bash
# A tenant joins two daemons by a reload, in memory reserved for it at start: engines use it at once, pages move between the
# daemons and to the disk. A tenant that cannot join is refused, with the differing size or the owner of the reserve.
source "$(dirname "$0")/with_ternd.sh"
needs python3 "to check the JSON"
declare -A PORT

put() { # NODE TENANTS-OF-THE-PEER ENTRY...: its file
    local node=$1 other=decode
    [[ $node == decode ]] && other=prefill
    {
        printf 'spill: {dir: %s, bytes: 128M, headroom: 1M}\n' "$DIR/$node/spill"
        printf 'reserve: {tenants: 1, like: t0}\ntenants:\n'
        printf '  - %s\n' "{name: t0, socket: $DIR/$node/t0.sock, memory: 64M, sessions_max: 512}" "${@:3}"
        [[ -z $2 ]] || printf 'peers:\n  - {name: %s, address: "127.0.0.1:%s", tenants: [%s]}\n' $other "${PORT[$other]}" "$2"
    } >"$DIR/$node/config.yaml"
}
entry() { echo "{name: $2, socket: $DIR/$1/$2.sock${3:+, $3}}"; } # NODE NAME SIZES
ctl() { "$CTL" --socket "$DIR/$1/admin.sock" "${@:2}"; }
up() { ctl "$1" peers --json | value "any(p['state'] == 'up' for p in j['peers'])" | grep -q True; }
names() { ctl prefill "$1" --json | value "sorted({str(v) for k in ('tenants', 'refusals') for t in j.get(k, []) for v in [t['tenant']]})"; }
other_rows() { ctl prefill status --json | value "[d['door'] for d in j['doors']] + [s['share'] for s in j['send_buffers']['shares']] + list(j['shares'][0]['used'])"; }

for node in prefill decode; do
    mkdir -p "$DIR/$node/spill"
    put $node ""
    ternd_run $node --config "$DIR/$node/config.yaml" --listen 127.0.0.1:0 --insecure_peers
    PORT[$node]=$(sed -n 's/.* control_port=\([0-9]*\).*/\1/p' "$DIR/$node/log")
done

ctl prefill watch --json >"$DIR/changes" 2>&1 &
PIDS[watch]=$!
wait_for "watch" test -s "$DIR/changes"

# ---- a free slot is shown nowhere, and takes no other name
for command in status stats tenants; do [[ $(names $command) == "['t0']" ]] || fail "$command: $(names $command)"; done
[[ $(other_rows) == "['data', 'peers', 't0', 'admin', 't0', 'operators', 'peers', 't0']" ]] || fail "rows: $(other_rows)"
ends 1 "there is no tenant t1" ctl prefill peer add decode localhost:1 --tenants t1

# ---- tenants that cannot join
for node in prefill decode; do
    put $node t0
    ends 0 "^1 done; 0 need a restart$" ctl $node reload
done
put prefill t0 "$(entry prefill t1 "memory: 32M, regions: 2")"
ends 0 "^tenants\[t1\]: - -> t1: needs a restart, for memory is 33554432, and that of the reserve is 67108864; regions is 2, and that of the reserve is 1; sessions_max is 4096, and that of the reserve is 512; use the sizes of the reserve, or leave out" ctl prefill reload
mkdir "$DIR/prefill/t1.sock"
put prefill "t0, t1" "$(entry prefill t1)"
ends 0 "^tenants\[t1\]: - -> t1: failed, for .*t1.sock: the path exists and is not a socket" ctl prefill reload --dry-run
ends 0 "^0 done; 0 need a restart; 1 failed$" ctl prefill reload # and the peer does not see it
rmdir "$DIR/prefill/t1.sock"
mkdir "$DIR/prefill/spill/t1"
ends 0 "^tenants\[t1\]: - -> t1: failed, for spill.dir has a folder t1 of an earlier tenant" ctl prefill reload
rmdir "$DIR/prefill/spill/t1"

# ---- tenants that can join: reported first, then applied
ends 0 "^tenants\[t1\]: - -> t1: would be done$" ctl prefill reload --dry-run
ends 0 "^peers\[decode\].tenants: t0 -> t0+t1: would be done$" ctl prefill reload --dry-run
[[ ! -e $DIR/prefill/t1.sock && $(names status) == "['t0']" ]] || fail "a dry run has let it join"
put prefill "t0, t1" "$(entry prefill t1)" "$(entry prefill t2)"
ends 0 "^tenants\[t2\]: - -> t2: needs a restart, for .* which use it: (another of this reload) 0 engines" ctl prefill reload --dry-run
for node in prefill decode; do
    put $node "t0, t1" "$(entry $node t1)"
    ends 0 "^2 done; 0 need a restart$" ctl $node reload
    grep -q "event=tenant_joined tenant=t1 socket=$DIR/$node/t1.sock memory_bytes=67108864 regions=1 reserve_left=0" "$DIR/$node/log" || fail "$node: not logged"
    ends 0 "^no setting differs from those in force$" ctl $node reload
done
for node in prefill decode; do wait_for "the link of $node" up $node; done
for command in status stats tenants; do [[ $(names $command) == "['t0', 't1']" ]] || fail "$command: $(names $command)"; done
[[ $(other_rows) == "['data', 'peers', 't0', 't1', 'admin', 't0', 't1', 'operators', 'peers', 't0', 't1']" ]] || fail "rows: $(other_rows)"
[[ $(stat -c %a "$DIR/prefill/t1.sock") == 660 ]] || fail "the mode of its socket"

# ---- its engines on both daemons
"$TERN_BIN/tern-replay" --sessions 4 --turns 3 --json --prefill "$DIR/prefill/t1.sock,$DIR/prefill/admin.sock" \
    --decode "$DIR/decode/t1.sock,$DIR/decode/admin.sock" >"$DIR/json" 2>"$DIR/err" || fail "the replay: exit status $?"
json "$(cat "$DIR/json")" "(j['wrong_bytes'], j['failed_requests'], j['leaked_pages']) == (0, 0, 0) and j['transferred_pages'] > 0"
json "$(ctl prefill stats --json)" "[t['tenant'] for t in j['tenants'] if t['prompts']] == ['t1']"

# A subscriber from before it joined has no name for it.
wait_for "its changes" grep -qs '"tenant": *null' "$DIR/changes"
! grep -q '"tenant": *""' "$DIR/changes" || fail "a tenant without a name"
if [[ -x $TERN_BIN/tern-agent ]] && command -v curl >/dev/null; then
    "$TERN_BIN/tern-agent" --listen 127.0.0.1:0 --socket "$DIR/prefill/admin.sock" 2>"$DIR/agent.out" &
    PIDS[agent]=$!
    wait_for "tern-agent" grep -q "listens at" "$DIR/agent.out"
    curl -s -m 30 -o "$DIR/out" "$(sed -n 's/.*listens at \(.*\)\/$/\1/p' "$DIR/agent.out")/metrics"
    grep -q 'tenant="t1".* [1-9]' "$DIR/out" && ! grep -q 'tenant=""' "$DIR/out" || fail "metrics of t1"
fi

# ---- a peer's tenants are found by their names, in whatever order the file has them
put prefill t0 "$(entry prefill t1)"
sed -i '/{name: t0/{h;d}; /{name: t1/G' "$DIR/prefill/config.yaml"
ends 0 "^peers\[decode\].tenants: t0+t1 -> t0: done$" ctl prefill reload
ends 0 "^no setting differs from those in force$" ctl prefill reload

# ---- the reserve is in use
put prefill "t0, t1" "$(entry prefill t1)" "$(entry prefill t2)"
ends 0 "^tenants\[t2\]: - -> t2: needs a restart, for reserve.tenants is 1 and used up: raise it, or remove one of these tenants, which use it: t1 [0-9]* engines, [0-9]* sessions, [0-9]* pools$" ctl prefill reload
put prefill t0
ends 0 "^tenants\[t1\]: t1 -> -: needs a restart, for the daemon creates a tenant's memory, socket and shares at its start$" ctl prefill reload

# ---- a restart makes all tenants of the file, and the reserve besides
put prefill "" "$(entry prefill t1)"
kill "${PIDS[prefill]}"
wait "${PIDS[prefill]}" || fail "prefill ended with $?"
[[ ! -e $DIR/prefill/t1.sock ]] || fail "the socket is left behind"
ternd_run prefill --config "$DIR/prefill/config.yaml" --listen 127.0.0.1:0 --insecure_peers
grep -q "event=spill_recovered entries=[1-9]" "$DIR/prefill/log" || fail "what it stored is not there"
[[ $(names status) == "['t0', 't1']" ]] || fail "after a restart: $(names status)"
put prefill "" "$(entry prefill t1)" "$(entry prefill t2)"
ends 0 "^1 done; 0 need a restart$" ctl prefill reload
echo "tenant joins: ok"

#!/usr/bin/env bash
# Operations that end something: session close, engine kick, pool close; each logs who did it.
source "$(dirname "$0")/with_ternd.sh"
needs python3 "to check the JSON"
ternd_start "    host_memory: 16M
tape:
  bytes: 8M" 16M 1
HOLD=$TERN_BUILD/tests/holder
mkfifo "$DIR/hold" "$DIR/away"
"$HOLD" hold "$SOCKET" <"$DIR/hold" >"$DIR/hold.out" &
HOLDER=$!
exec 9>"$DIR/hold"
"$HOLD" away "$SOCKET" <"$DIR/away" >"$DIR/away.out" 9>&- &
AWAY=$!
exec 8>"$DIR/away"
PIDS[hold]=$HOLDER PIDS[away]=$AWAY
wait_for "the engines" grep -q ready "$DIR/hold.out"
wait_for "the engines" grep -q ready "$DIR/away.out"
retracted() { "$CTL" sessions --json | value "sum(s['state'] == 'retracted' for s in j['sessions'])" | grep -qx 2; }
wait_for "the retracts" retracted
logged() { # ACT RESULT-PATTERN
    grep -qE "event=operator_asks act=$1 pid=[0-9]+ uid=$(id -u) " "$DIR/log" || fail "the log does not tell who asked: $1"
    grep -qE "event=operator_done act=$1 pid=[0-9]+ uid=$(id -u) .*result=\"?$2" "$DIR/log" || fail "the log has no result of $1: $2"
}

# ---- a session in use by its engine stays; one that is away is closed, and its engine gets GONE
USED=$("$CTL" sessions --engine holder --json | value "j['sessions'][0]['session']")
GONE=$("$CTL" sessions --json | value "[s['session'] for s in j['sessions'] if s['state'] == 'retracted'][0]")
ends 1 "the session's engine still uses it" "$CTL" session close "$USED"
ends 0 "$GONE is closed; its pages are free" "$CTL" session close "$GONE"
logged session-close "pages are free after step"
ends 1 "no such session" "$CTL" session close "$GONE"
ends 2 "is not a session" "$CTL" session close zork
ends 2 "is not an action" "$CTL" session open "$GONE"
ends 2 "is missing" "$CTL" session close
json "$("$CTL" sessions --json)" "len(j['sessions']) == 3 and '$GONE' not in [s['session'] for s in j['sessions']]"

# ---- a pool that is mapped stays
POOL=$("$CTL" pools --engine holder --json | value "j['pools'][0]['pool']")
HOST=$("$CTL" pools --json | value "[p['pool'] for p in j['pools'] if p['tier'] == 'host'][0]")
ends 1 "1 engines have mapped the pool, and 2 sessions are open in it" "$CTL" pool close "$POOL"
ends 1 "is the host tier of pool" "$CTL" pool close "$HOST"
ends 1 "there is no 'zork'" "$CTL" pool close zork

# ---- a kicked engine keeps its pages while its process lives
json "$("$CTL" engine kick holder --json)" "(j['alive'], j['pids']) == (1, [$HOLDER])"
logged engine-kick "1 processes alive"
dying() { "$CTL" engines --json | value "[e['state'] for e in j['engines'] if e['name'] == 'holder'] == ['dying'] and len(j['engines']) == 2" | grep -q True; }
wait_for "its end" dying
wait_for "its connection" grep -q "the engine was kicked by an operator" "$DIR/log"
json "$("$CTL" sessions --engine holder --json)" "len(j['sessions']) == 2"
alarmed() { "$CTL" status --json | value "[a['subject'] for a in j['alarms'] if a['name'] == 'engine_stuck']" | grep -q holder; }
wait_for "the alarm" alarmed
ends 1 "there is no 'zork'" "$CTL" engine kick zork
exec 9>&-
wait "$HOLDER" || true
unset "PIDS[hold]"
ended() { "$CTL" engines --json | value "[e['name'] for e in j['engines']]" | grep -qv holder; }
wait_for "the end of its process" ended

# ---- then its pool has no owner
ends 0 "$POOL is being closed: .* prefix nodes are evicted" "$CTL" pool close "$POOL"
logged pool-close "[0-9]* nodes will be evicted"
closed() { "$CTL" pools --json | value "[p['pool'] for p in j['pools']]" | grep -qv "$POOL"; }
wait_for "the pool's end" closed

# ---- a tape has all of it and replays it
"$CTL" tape "$DIR/a.tape" --tokens --json >"$DIR/tape.json"
HASH=$(value "j['core_hash']" <"$DIR/tape.json")
"$TERN_BIN/tern-sim" --tape "$DIR/a.tape" --json >"$DIR/played.json" || fail "tern-sim could not play the tape"
json "$(cat "$DIR/played.json")" "j['state_hash'] == '$HASH'"
exec 8>&-
wait "$AWAY" || true # one of its sessions is gone
unset "PIDS[away]"
ternd_stop || fail "ternd did not end"
echo "ctl ends: ok"

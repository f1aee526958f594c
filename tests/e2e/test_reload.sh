#!/usr/bin/env bash
# `ternctl reload`, SIGHUP and --dry-run: each difference of the file is reported, possible changes
# are applied, and a file with an error changes nothing.
source "$(dirname "$0")/with_ternd.sh"
needs python3 "to check the JSON"
export DRAIN_MS=600

ternd_start "" 16M 1
cp "$DIR/config.yaml" "$DIR/first.yaml"
ends 0 "^no setting differs from those in force$" "$CTL" reload

# ---- reported, not applied
sed -i 's/drain_ms: 600/drain_ms: 700/' "$DIR/config.yaml"
printf 'log_level: debug\nlimits: {pools: 5}\n' >>"$DIR/config.yaml"
ends 0 "^deadlines.drain_ms: 600 -> 700: would be done$" "$CTL" reload --dry-run
ends 0 "^limits.pools: 32 -> 5: needs a restart, for the daemon sizes memory and tables by this setting at its start$" "$CTL" reload --dry-run
ends 0 "^2 would be done; 1 need a restart$" "$CTL" reload --dry-run # nothing was applied before it
! grep -q "event=setting_changed" "$DIR/log" || fail "a dry run changed something"
json "$("$CTL" reload --dry-run --json)" "j['dry_run'] and not j['reloaded'] and (j['done'], j['restart']) == (2, 1)"

# ---- applied
json "$("$CTL" reload --json)" "[(c['setting'], c['outcome']) for c in j['changes']] == [('log_level', 'done'), ('deadlines.drain_ms', 'done'), ('limits.pools', 'needs a restart')]"
grep -q "event=setting_changed setting=deadlines.drain_ms was=600 is=700 outcome=done" "$DIR/log" || fail "not logged"
grep -q "event=operator_done act=reload pid=[0-9]* uid=$(id -u) .*2 done, 1 need a restart" "$DIR/log" || fail "not logged"
grep -q "level=debug event=conn_closed" "$DIR/log" || "$CTL" ping --count 1 >/dev/null
wait_for "lines of level debug" grep -q "level=debug" "$DIR/log"
json "$("$CTL" status --json)" "j['log']['level'] == 'debug'"
ends 0 "^0 done; 1 need a restart$" "$CTL" reload # reported until then

# ---- a drain in progress ends by the new deadline
exec 9> >(exec "$TERN_BUILD/tests/holder" hold "$SOCKET" >"$DIR/holder.out")
wait_for "an engine with open sessions" grep -qs ready "$DIR/holder.out"
"$CTL" drain >/dev/null
sed -i 's/drain_ms: 700/drain_ms: 3600000/' "$DIR/config.yaml"
"$CTL" reload >/dev/null
[[ $("$CTL" drain --json | value 'j["left_ms"]') -gt 3000000 ]] || fail "the drain under way keeps its deadline"
"$CTL" undrain >/dev/null
echo >&9
exec 9>&-
sed -i 's/drain_ms: 3600000/drain_ms: 700/' "$DIR/config.yaml"
"$CTL" reload >/dev/null

# ---- an error changes nothing
cp "$DIR/config.yaml" "$DIR/whole.yaml"
sed -i 's/drain_ms: 700/drain_ms: 800/' "$DIR/config.yaml"
echo "zork: 1" >>"$DIR/config.yaml"
LINE=$(grep -n zork "$DIR/config.yaml" | cut -d: -f1)
ends 1 "config.yaml:$LINE: zork: unknown key" "$CTL" reload
kill -HUP "$TERND_PID"
wait_for "the signal's line" bash -c "[[ \$(grep -c 'level=error event=reload_failed .*zork' '$DIR/log') == 2 ]]"
! grep -q "is=800" "$DIR/log" || fail "a file with an error changed something"

# ---- and a signal does the same
cp "$DIR/first.yaml" "$DIR/config.yaml"
kill -HUP "$TERND_PID"
wait_for "what the signal did" grep -q "event=setting_changed setting=deadlines.drain_ms was=700 is=600 outcome=done" "$DIR/log"
wait_for "its end" grep -q "event=reloaded done=2 restart=0" "$DIR/log"
ends 0 "^no setting differs from those in force$" "$CTL" reload
ternd_stop
grep -q "event=draining drain_ms=600" "$DIR/log" || fail "drain_ms is not in force"
echo "reload: ok"

#!/usr/bin/env bash
# `ternctl top` in a terminal: figures of a running workload, a resize, a daemon that ends and starts again;
# afterwards the terminal is unchanged. Without a terminal: --once, --json, and the error otherwise.
source "$(dirname "$0")/with_ternd.sh"
[[ -x $TERN_BIN/tern-replay ]] || skip "tern-replay is not in this build"
needs python3 "to check the JSON"
needs tmux "to have a terminal"
MUX=(tmux -S "$DIR/mux" -f /dev/null)
trap '"${MUX[@]}" kill-server 2>/dev/null || true; cleanup' EXIT

screen() { "${MUX[@]}" capture-pane -p -t top; }
shows() { grep -qE -- "$1" <<<"$(screen)"; }
gone() { ! shows "$1"; }
keys() { "${MUX[@]}" send-keys -t top "$@"; }
# The widest line of the screen.
widest() { screen | awk '{ if (length($0) > n) n = length($0) } END { print n + 0 }'; }
# within COLUMNS ROWS: the screen shows something, and all of it fits
within() {
    local lines
    lines=$(screen | grep -c .)
    (($(widest) <= $1 && lines <= $2 && lines > 2))
}

free_ports PORTS[0] PORTS[1]
daemon() { # NODE PORT PEER PEER-PORT
    ternd_run "$1" --page_bytes_min 512 --tenant "name=default,socket=$DIR/$1/default.sock,memory=16M" \
        --listen "127.0.0.1:$2" --insecure_peers --peer "name=$3,address=127.0.0.1:$4,tenants=default"
}
daemon prefill "${PORTS[0]}" decode "${PORTS[1]}"
daemon decode "${PORTS[1]}" prefill "${PORTS[0]}"
# Runs until it is killed: there is always something to show.
"$TERN_BIN/tern-replay" --prefill "$DIR/prefill/default.sock" --decode "$DIR/decode/default.sock" --profile tiny --page-bytes 512 \
    --sessions 20000 --turns 6 --concurrency 4 --pool-pages 2000 --seed 1 --json >"$DIR/json" 2>"$DIR/err" &
PIDS[replay]=$!
ADMIN=$DIR/decode/admin.sock
begun() { (($("$CTL" --socket "$ADMIN" status --json | value "j['figures'][0]['fetched_peer_tokens']") > 0)); }
wait_for "the workload" begun

# ---- without a terminal
ends 2 "no.* terminal: .ternctl top --once. prints one screen" "$CTL" --socket "$ADMIN" top
ends 2 '"error": "USAGE"' "$CTL" --socket "$ADMIN" top --every 99 --json
ends 2 "--every takes a number from 100 to 60000" "$CTL" --socket "$ADMIN" top --every 99 --once
ends 3 "no such socket" "$CTL" --socket "$DIR/nobody.sock" top --once
J=$("$CTL" --socket "$ADMIN" top --every 100 --json)
json "$J" "j['interval_s'] >= 0.1 and [r['tenant'] for r in j['rates']] == ['default'] and len(j['slowest']) <= 20"
json "$J" "all(g['live'] + g['evictable'] + g['free'] == g['total'] > 0 for g in j['groups']) and len(j['groups']) == 1"
json "$J" "all(r[k] >= 0 for r in j['rates'] for k in ('prompt_tokens_per_s', 'matched_tokens_per_s', 'fetched_tokens_per_s',
 'published_tokens_per_s')) and 0 < j['rates'][0]['hit_rate_since_start'] <= 1"
rates() { # both counters moved between the two samples
    json_of=$("$CTL" --socket "$ADMIN" top --every 100 --json)
    python3 -c 'import json, sys; r = json.loads(sys.argv[1])["rates"][0]
sys.exit(not (r["prompt_tokens_per_s"] > 0 and r["fetched_tokens_per_s"] > 0 and 0 < r["hit_rate"] <= 1))' "$json_of"
}
wait_for "rates" rates
ends 0 "^default  *[0-9]" "$CTL" --socket "$ADMIN" top --every 100 --once
[[ $(awk '{ if (length($0) > n) n = length($0) } END { print n }' "$DIR/out") -le 100 ]] || fail "--once is wider than 100 columns: $(cat "$DIR/out")"
! grep -q $'\033' "$DIR/out" || fail "--once commands a terminal"

# ---- in a terminal
"${MUX[@]}" new-session -d -s top -x 80 -y 30 "env PS1='prompt> ' bash --norc --noprofile"
wait_for "a shell" shows "^prompt>"
keys "stty -a >'$DIR/before'; clear; echo here" Enter
wait_for "what stands there" shows "^here"
keys "NO_COLOR=1 '$CTL' --socket '$ADMIN' top --every 100; echo status \$?" Enter
wait_for "figures" shows "^default  +[0-9.,]+.* +[0-9.]+ %"
wait_for "the pools" shows "^ +0 +default +device .*[#+.]{16}"
shows "decode  serving  up .*  every 100 ms  q ends" || fail "the head: $(screen)"
shows "alarm" || fail "nothing about alarms: $(screen)"
gone "^here" || fail "what stood there is mixed with it: $(screen)"
within 80 30 || fail "it does not fit: $(screen)"
[[ $("${MUX[@]}" display-message -p -t top '#{alternate_on}#{cursor_flag}') == 10 ]] || fail "no screen of its own without a cursor"
for size in "100 40" "60 12" "50 8" "80 24"; do
    "${MUX[@]}" resize-window -t top -x "${size% *}" -y "${size#* }"
    wait_for "the size $size" within ${size% *} ${size#* }
    ((${size% *} < 80)) || wait_for "the figures at $size" shows "^default  +[0-9.,]+"
    wait_for "the head at $size" shows "^decode  serving"
    wait_for "a word of alarms at $size" shows "alarm"
    screen | grep .
done

# ---- the daemon goes down, and another one comes up
kill -9 "${PIDS[replay]}" "${PIDS[decode]}"
wait "${PIDS[replay]}" "${PIDS[decode]}" 2>/dev/null || true
unset "PIDS[replay]" "PIDS[decode]"
wait_for "that it is away" shows "^NO DAEMON for .*: "
shows "^ +0 +default +device " || fail "what was told last is gone: $(screen)"
rm -f "$ADMIN"
daemon decode "${PORTS[1]}" prefill "${PORTS[0]}"
wait_for "the next daemon" shows "^decode  serving  up "
wait_for "its pools" shows "no pool is open"
gone "NO DAEMON" || fail "it still says that there is none: $(screen)"

# ---- the end, by q and by Ctrl-C: the terminal is as before
for key in q C-c; do
    keys "$key"
    wait_for "the end by $key" shows "^status 0"
    shows "^here" || fail "what stood there is not back: $(screen)"
    [[ $("${MUX[@]}" display-message -p -t top '#{alternate_on}#{cursor_flag}') == 01 ]] || fail "the screen or the cursor is not back after $key"
    keys "stty -a >'$DIR/after'; echo told" Enter
    wait_for "the settings" shows "^told"
    cmp -s <(sed 's/rows [0-9]*; columns [0-9]*//' "$DIR/before") <(sed 's/rows [0-9]*; columns [0-9]*//' "$DIR/after") ||
        fail "the terminal's settings after $key: $(diff "$DIR/before" "$DIR/after")"
    [[ $key == q ]] || break
    # One sample, and then none for a minute: a resize draws it again.
    "${MUX[@]}" resize-window -t top -x 50 -y 20
    keys "clear; echo here; NO_COLOR=1 '$CTL' --socket '$ADMIN' top --every 60000; echo status \$?" Enter
    wait_for "top once more" shows "^decode  serving"
    gone "1 up, transfers 0" || fail "50 columns have room for it: $(screen)"
    HEAD=$(screen | head -n 1)
    "${MUX[@]}" resize-window -t top -x 100 -y 20
    wait_for "the other size" shows "1 up, transfers 0"
    [[ $(screen | head -n 1) == "$HEAD" ]] || fail "it was drawn at the next look alone: $HEAD, then $(screen)"
done
echo "top: ok"

#!/usr/bin/env bash
# ternd --check-config: a configuration that passes starts; every reason why one cannot start here is named,
# and no trace is left.
source "$(dirname "$0")/with_ternd.sh"

# config FOLDER LISTEN PEER TLS: writes a configuration to $DIR/check.yaml
config() {
    cat >"$DIR/check.yaml" <<EOF
node: e2e
workers: 1
huge_pages: false
listen: "$2"
admin: {socket: $1/admin.sock}
tenants:
  - {name: t0, socket: $1/t0.sock, memory: 16M}
peers:
  - {name: other, address: "$3", tenants: [t0]}
$4
EOF
}

# check STATUS FOLDER LISTEN PEER TLS PATTERN...: the exit status with that configuration; standard
# error has exactly one line for each pattern
check() {
    local status=$1 rc=0
    config "${@:2:4}"
    shift 5
    "$TERN_BIN/ternd" --config "$DIR/check.yaml" --check-config >"$DIR/out" 2>"$DIR/err" || rc=$?
    [[ $rc == "$status" ]] || fail "exit status $rc, not $status: $(cat "$DIR/err")"
    for pattern in "$@"; do
        grep -q -- "$pattern" "$DIR/err" || fail "no '$pattern' in: $(cat "$DIR/err")"
    done
    [[ $(wc -l <"$DIR/err") == "$#" ]] || fail "more than $# lines: $(cat "$DIR/err")"
    if [[ $status == 0 ]]; then
        grep -q "^node: " "$DIR/out" || fail "what is in force is not printed"
    else
        [[ ! -s $DIR/out ]] || fail "printed though it is wrong"
    fi
}

CLEAR="insecure_peers: true"

# --help lists the keys of the entries that flags may add: all keys in force
"$TERN_BIN/ternd" --check-config --insecure_peers --tenant "name=t0,socket=$DIR/t0.sock,memory=16M" \
    --peer name=other,address=127.0.0.1:1,tenants=t0 --admin.socket "$DIR/admin.sock" >"$DIR/out"
"$TERN_BIN/ternd" --help | tr -s ' \n' ' ' >"$DIR/help"
for entry in tenant peer; do
    keys=$(grep -o "One more $entry: [a-z_=, ]*" "$DIR/help") || fail "no --$entry in the help"
    for key in $(awk -v entries="${entry}s:" '/^[a-z#]/ { on = $0 == entries; next } on { sub(/^[ -]*/, ""); sub(/:.*/, ""); print }' "$DIR/out"); do
        [[ "$keys," == *[:,]" $key"[,=\ ]* ]] || fail "--help does not name $key of a $entry: $keys"
        named=$((${named:-0} + 1))
    done
done
[[ $named -ge 19 ]] || fail "only $named keys were found"
mkdir "$DIR/run"
check 0 "$DIR/run" 127.0.0.1:0 127.0.0.1:1 "$CLEAR"
[[ -z $(ls "$DIR/run") ]] || fail "left behind: $(ls "$DIR/run")"

# beside a daemon that runs with it
"$TERN_BIN/ternd" --config "$DIR/check.yaml" 2>"$DIR/log" &
TERND_PID=$!
ready "$TERND_PID" "$DIR/log"
port=$(grep -o 'control_port=[0-9]*' "$DIR/log" | cut -d= -f2)
check 0 "$DIR/run" 127.0.0.1:0 127.0.0.1:1 "$CLEAR"
check 0 "$DIR/run" "127.0.0.1:$port" 127.0.0.1:1 "$CLEAR"
"$CTL" --socket "$DIR/run/admin.sock" ping >/dev/null || fail "the daemon was disturbed"
ternd_stop

# each error alone, and all at once
check 2 "$DIR/none" 127.0.0.1:0 127.0.0.1:1 "$CLEAR" \
    "none/admin.sock: its folder $DIR/none: No such file" "none/t0.sock: its folder"
touch "$DIR/file"
check 2 "$DIR/file" 127.0.0.1:0 127.0.0.1:1 "$CLEAR" \
    "admin.sock: $DIR/file is not a folder" "t0.sock: $DIR/file is not a folder"
touch "$DIR/run/t0.sock"
check 2 "$DIR/run" 127.0.0.1:0 127.0.0.1:1 "$CLEAR" "t0.sock: the path exists and is not a socket"
rm "$DIR/run/t0.sock"
check 0 "$DIR/run" 127.0.0.1:0 127.0.0.1:1 "$CLEAR
tape: {file: $DIR/none/crash.tape}" "warning: tape.file .*none: No such file or directory; a crash will leave no tape"
check 2 "$DIR/run" 192.0.2.1:7001 127.0.0.1:1 "$CLEAR" "listen: 192.0.2.1: Cannot assign requested address"
check 0 "$DIR/run" 127.0.0.1:0 "[fe80::1%nosuch0]:7001" "$CLEAR" \
    "warning: peer other: fe80::1%nosuch0: .* (a running daemon resolves the name again)"
if [[ $EUID == 0 ]] && command -v setpriv >/dev/null; then
    chmod 755 "$DIR" "$DIR/run"
    config "$DIR/run" 127.0.0.1:0 127.0.0.1:1 "$CLEAR"
    chmod 644 "$DIR/check.yaml"
    cp "$TERN_BIN/ternd" "$DIR/ternd"
    ends 2 "" setpriv --reuid 65534 --regid 65534 --clear-groups "$DIR/ternd" --config "$DIR/check.yaml" --check-config
    [[ $(grep -c "this user may not make a socket in" "$DIR/out") == 2 ]] || fail "not two: $(cat "$DIR/out")"
fi
bash "$TERN_SOURCE/deploy/make-certs.sh" "$DIR/certs" e2e other >/dev/null 2>&1
tls() { echo "tls: {ca: $DIR/certs/ca.pem, cert: $DIR/certs/$1.pem, key: $DIR/certs/$2.key}"; }
check 0 "$DIR/run" 127.0.0.1:0 127.0.0.1:1 "$(tls e2e e2e)"
check 2 "$DIR/run" 127.0.0.1:0 127.0.0.1:1 "$(tls none none)" "tls: $DIR/certs/none.pem: No such file"
check 2 "$DIR/run" 127.0.0.1:0 127.0.0.1:1 "$(tls e2e other)" \
    "tls: $DIR/certs/other.key: is not the key of the certificate"
check 2 "$DIR/none" 192.0.2.1:7001 "[fe80::1%nosuch0]:7001" "$(tls other other)" \
    "admin.sock: its folder" "t0.sock: its folder" "tls: .*DNS:e2e" "listen: 192.0.2.1" "peer other: "
[[ -z $(ls "$DIR/run") ]] || fail "left behind: $(ls "$DIR/run")"

# a failing start prints the same; one with few descriptors names them
config "$DIR/run" 127.0.0.1:0 127.0.0.1:1 "$CLEAR"
(ulimit -n 200 && exec "$TERN_BIN/ternd" --config "$DIR/check.yaml" 2>"$DIR/log") &
TERND_PID=$!
ready "$TERND_PID" "$DIR/log"
ternd_stop
grep -q "level=warn event=few_descriptors has=200 wants=" "$DIR/log" || fail "few descriptors: $(cat "$DIR/log")"
config "$DIR/run" 192.0.2.1:7001 127.0.0.1:1 "$CLEAR"
ends 1 "err=INVALID.*192.0.2.1 cannot be opened: Cannot assign requested address" \
    "$TERN_BIN/ternd" --config "$DIR/check.yaml"
python3 - "$DIR/port" <<'PY' &
import socket, sys, time, os
s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen()
open(sys.argv[1] + ".new", "w").write(str(s.getsockname()[1]))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(60)
PY
holder=$!
wait_for "a listener" test -f "$DIR/port"
config "$DIR/run" 127.0.0.1:0 127.0.0.1:1 "$CLEAR"
ends 1 "err=CONFLICT.*cannot be opened: Address already in use; choose another" \
    "$TERN_BIN/ternd" --config "$DIR/check.yaml" --data_port "$(cat "$DIR/port")"
kill "$holder"
echo ok

#!/usr/bin/env bash
# tern-member and one etcd that requires certificates: certificate problems are reported and retried with growing pauses. A
# daemon of another name is not published. Two tern-members of one name do not overwrite each other's key; the one that
# starts after a crash takes the key over.
source "$(dirname "$0")/with_ternd.sh"
MEMBER=$TERN_BIN/tern-member
[[ -x $MEMBER ]] || skip "there is no tern-member in this build: libcurl was not found"
needs python3 "to read JSON"
needs curl "to look into etcd"
needs openssl "to make certificates"
command -v etcd >/dev/null || skip "etcd is needed (package etcd-server)"
free_ports CLIENTS RAFT
URL=https://127.0.0.1:$CLIENTS CERTS=$DIR/certs
export TERN_ADMIN_SOCKET=$DIR/admin.sock

SAN=subjectAltName=IP:127.0.0.1 bash "$TERN_SOURCE/deploy/make-certs.sh" "$CERTS" etcd
bash "$TERN_SOURCE/deploy/make-certs.sh" "$CERTS" e2e
bash "$TERN_SOURCE/deploy/make-certs.sh" "$DIR/others" e2e
mapfile -t urls < <(printf -- '--%s=%s\n' listen-client-urls "$URL" advertise-client-urls "$URL" \
    listen-peer-urls "http://127.0.0.1:$RAFT" initial-advertise-peer-urls "http://127.0.0.1:$RAFT" initial-cluster "e=http://127.0.0.1:$RAFT")
etcd --name e --data-dir "$DIR/etcd" "${urls[@]}" --client-cert-auth --trusted-ca-file "$CERTS/ca.pem" --cert-file "$CERTS/etcd.pem" \
    --key-file "$CERTS/etcd.key" >"$DIR/etcd.out" 2>&1 &
PIDS[etcd]=$!
ask() { curl -sf -m 5 --cacert "$CERTS/ca.pem" --cert "$CERTS/e2e.pem" --key "$CERTS/e2e.key" "$URL/$1" -d "$2"; }
etcd_ok() { ask v3/kv/range "{\"key\":\"$(base64 <<<x)\"}" >/dev/null; }
wait_for "etcd" etcd_ok
ternd_start "" 16M 1

# ---- members, and the key of their common name
KEY=$(printf /tern/nodes/e2e | base64)
CERTIFIED=(--cacert "$CERTS/ca.pem" --cert "$CERTS/e2e.pem" --key "$CERTS/e2e.key")
member() { # WHICH FLAG...
    : >"$DIR/$1.out" # here: the previous one may have printed it
    "$MEMBER" --node e2e --address "$1:7000" --interval-ms 50 --deadline-ms 30000 "${@:2}" 2>>"$DIR/$1.out" &
    PIDS[$1]=$!
}
gone() { # WHICH [SIGNAL]
    kill "${2:--TERM}" "${PIDS[$1]}"
    wait "${PIDS[$1]}" 2>/dev/null || [[ -n ${2:-} ]] || fail "tern-member $1 ended with $?"
    unset "PIDS[$1]"
}
said() { grep -q "event=$2 " "$DIR/$1.out"; }
key() { # FIELD: of the key in etcd; nothing without a key
    ask v3/kv/range "{\"key\":\"$KEY\"}" | python3 -c 'import json, sys; kvs = json.load(sys.stdin).get("kvs"); print(kvs[0][sys.argv[1]] if kvs else "")' "$1"
}
key_is() { [[ $(key value | base64 -d) == *"\"address\":\"$1:7000\""* ]]; }
key_delete() { ask v3/kv/deleterange "{\"key\":\"$KEY\"}" >/dev/null; }

# ---- certificates
wrong() { # PATTERN FLAG...
    member bad "${@:2}"
    wait_for "the loss" said bad etcd_lost
    grep -q "event=etcd_lost .*$1" "$DIR/bad.out" || fail "no '$1' in: $(cat "$DIR/bad.out")"
    [[ $(grep -c event=etcd_lost "$DIR/bad.out") == 1 ]] || fail "one loss is said more than once"
    gone bad
}
wrong "may require --cert and --key with a certificate of its CA" --endpoint "$URL" --cacert "$CERTS/ca.pem"
wrong "may require --cert and --key with a certificate of its CA" --endpoint "$URL" --cacert "$CERTS/ca.pem" \
    --cert "$DIR/others/e2e.pem" --key "$DIR/others/e2e.key"
wrong "--cacert must name the CA" --endpoint "$URL" --cacert "$DIR/others/ca.pem" --cert "$CERTS/e2e.pem" --key "$CERTS/e2e.key"
wrong "--cacert must name the CA" --endpoint "$URL" --cert "$CERTS/e2e.pem" --key "$CERTS/e2e.key"
wrong "--cacert .*the endpoint's host" --endpoint "${URL/127.0.0.1/localhost}" "${CERTIFIED[@]}"
wrong "--cert and --key must be PEM files of one pair" --endpoint "$URL" --cacert "$CERTS/ca.pem" --cert "$CERTS/e2e.pem" --key "$CERTS/etcd.key"
wrong "may require https://" --endpoint "${URL/https/http}"
ends 1 "no-such-file: No such file" "$MEMBER" --node e2e --address a:1 --endpoint "$URL" --cacert "$DIR/no-such-file"
[[ -z $(key value) ]] || fail "somebody without the right certificate has written"
echo "certificates: what is wrong is said"

# ---- growing pauses: five tries at a closing endpoint take at least 50 + 100 + 200 + 400 ms
python3 - "$MEMBER" <<'PY' || fail "pauses"
import socket, subprocess, sys, time

listener = socket.create_server(("127.0.0.1", 0))
listener.settimeout(120)
begin = time.monotonic()
url = f"http://127.0.0.1:{listener.getsockname()[1]}"
member = subprocess.Popen([sys.argv[1], "--node=e2e", "--address=a:1", "--endpoint", url, "--interval-ms=50"], stderr=subprocess.DEVNULL)
try:
    for _ in range(5):
        listener.accept()[0].close()
    assert time.monotonic() - begin >= 0.75, "the pauses do not grow"
finally:
    member.kill()
    member.wait()
PY

# ---- a name that is not the daemon's is not published
"$MEMBER" --node other --address other:7000 --interval-ms 50 --endpoint "$URL" "${CERTIFIED[@]}" 2>"$DIR/other.out" &
PIDS[other]=$!
wait_for "the loss" said other lease_granted
grep -q 'event=daemon_lost .*reason="the daemon.s name is e2e: give that name as --node"' "$DIR/other.out" || fail "$(cat "$DIR/other.out")"
ask v3/kv/put "{\"key\":\"$(printf /tern/nodes/x | base64)\",\"value\":\"$(printf nonsense | base64)\"}" >/dev/null
wait_for "a round behind it" said other keys_ignored
[[ -z $(KEY=$(printf /tern/nodes/other | base64) key value) ]] || fail "there is a key of another name"
ask v3/kv/deleterange "{\"key\":\"$(printf /tern/nodes/x | base64)\"}" >/dev/null
gone other

# ---- one name: the second is refused until the first has left
member first --endpoint "$URL" "${CERTIFIED[@]}" --ttl 3600
wait_for "the key" key_is first
member second --endpoint "$URL" "${CERTIFIED[@]}" --ttl 3600 --socket "$DIR/nobody.sock"
wait_for "the second to say so" said second name_taken
grep -q "level=error event=name_taken node=e2e address=first:7000 lease=[0-9a-f]* reason=.*its own --node" "$DIR/second.out" || fail "$(cat "$DIR/second.out")"
key_is first || fail "the second has overwritten the first"
gone first
wait_for "the name to be free" said second name_free
key_is second || fail "the second has not written its key"
gone second -KILL # its lease stays, and nothing shows that its daemon was this one
member first --endpoint "$URL" "${CERTIFIED[@]}" --ttl 3600
wait_for "the first to say so" said first name_taken
key_delete
wait_for "the name to be free" said first name_free
key_is first || fail "the first has not written its key"
[[ $(grep -c event=name_taken "$DIR/first.out") == 1 ]] || fail "one name that is taken is said more than once"

# ---- after a crash the key is taken over: it is of the same daemon, and its lease would last an hour
gone first -KILL
member third --endpoint "$URL" "${CERTIFIED[@]}" --ttl 3600
wait_for "the key to be taken over" key_is third
! said third name_taken || fail "its own key is not known: $(cat "$DIR/third.out")"

# ---- two members of one daemon: the second keeps the key, and they do not alternate
member fourth --endpoint "$URL" "${CERTIFIED[@]}" --ttl 3600
wait_for "the third to say so" said third name_taken
LEASE=$(key lease)
key_is fourth || fail "the key of the fourth"
sleep 0.5
[[ $(key lease) == "$LEASE" ]] || fail "they take the key from each other"
gone third

# ---- somebody else writes and deletes the key
ask v3/kv/put "{\"key\":\"$KEY\",\"value\":\"$(printf nonsense | base64)\"}" >/dev/null
wait_for "the fourth to say so" said fourth name_taken
key_delete
wait_for "the key to be written anew" key_is fourth
! said fourth etcd_lost || fail "$(cat "$DIR/fourth.out")"
gone fourth
[[ -z $(key value) ]] || fail "who left has left its key"
echo "member and etcd: ok"

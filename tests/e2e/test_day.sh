#!/usr/bin/env bash
# A day in the life of two hosts, from what `cmake --install` installs: they talk TLS and serve traffic, a peer and a tenant
# join, certificates are rotated, a disk fills, an engine dies, a host is drained, and another one is upgraded. After each
# event the metrics, the log and the alarms report it as documented.
source "$(dirname "$0")/with_ternd.sh"
[[ -z $SANITIZE ]] || skip "a sanitizer's build is not what is installed"
needs python3 "to read figures"
needs curl "to ask tern-agent"
needs openssl "to make certificates"
grep -q libssl <<<"$LIBRARIES" || skip "this build has no TLS"
[[ -x $TERN_BIN/tern-agent ]] || skip "there is no tern-agent in this build: libmicrohttpd was not found"
declare -A PORT URL

# ---- installed
cmake --install "$TERN_BUILD" --prefix "$DIR/root" >"$DIR/out" 2>&1 || fail "install: $(tail -n 5 "$DIR/out")"
PATH=$DIR/root/bin:$DIR/root/sbin:$PATH
for program in ternd ternctl tern-agent tern-replay; do
    [[ $(command -v $program) == "$DIR"/* ]] || fail "$program is not installed"
    $program --version >/dev/null || fail "$program does not run where it is installed"
done
CERTS=$(find "$DIR/root" -name make-certs.sh)
[[ -n $CERTS ]] || fail "make-certs.sh is not installed"
free_ports PORT[a] PORT[b] PORT[c]
certificates() { # DAYS
    DAYS=$1 bash "$CERTS" "$DIR/certs" a b c
}

configure() { # NODE PEERS
    mkdir -p "$DIR/$1"
    cat >"$DIR/$1/config.yaml" <<EOF
node: $1
listen: 127.0.0.1:${PORT[$1]}
workers: 1
huge_pages: false
page_bytes_min: 512
limits: {peers: 4}
tls: {ca: $DIR/certs/ca.pem, cert: $DIR/certs/$1.pem, key: $DIR/certs/$1.key}
admin: {socket: $DIR/$1/admin.sock}
deadlines: {drain_ms: 20000}
tenants:
  - {name: default, socket: $DIR/$1/default.sock, memory: 16M}
reserve: {tenants: 1, like: default}
peers: [$2]
EOF
}
start() { # NODE COMMAND...: that command and then the daemon's
    local node=$1
    shift
    "$@" ternd --config "$DIR/$node/config.yaml" 2>"$DIR/$node/log" &
    PIDS[$node]=$!
    ready "${PIDS[$node]}" "$DIR/$node/log"
}
ctl() { ternctl --socket "$DIR/$1/admin.sock" "${@:2}"; }
logged() { grep -q "$2" "$DIR/$1/log"; }
says() { # NODE PATTERN: waits until its log has the line
    wait_for "$1's log to say $2" logged "$1" "$2"
}
alarms() { ctl "$1" status --json | value '" ".join(sorted(a["name"] for a in j["alarms"]))'; }
alarm_on() { [[ " $(alarms "$1") " == *" $2 "* ]]; }
alarm_off() { ! alarm_on "$1" "$2"; }
metric() { # NODE NAME{LABELS}
    curl -s -m 30 "${URL[$1]}/metrics" | awk -v name="$2" '$1 == name { print $2 }'
}
shows() { # NODE NAME{LABELS} VALUE
    [[ $(metric "$1" "$2") == "$3" ]]
}
shown() { wait_for "$2 of $1 to be $3" shows "$@"; }
TENANT=default
replay() { # ARGS...: between the engines of TENANT on a and b, without a fault
    tern-replay --prefill "$DIR/a/$TENANT.sock" --decode "$DIR/b/$TENANT.sock" --peer a --profile tiny --page-bytes 512 \
        --sessions 4 --turns 4 "$@" --json >"$DIR/json" 2>"$DIR/err" || fail "tern-replay: $(cat "$DIR/err" "$DIR/json")"
    json "$(cat "$DIR/json")" "j['wrong_bytes'] == j['failed_requests'] == j['leaked_pages'] == 0 and j['transferred_pages'] > 0"
}
mkfifo "$DIR/never"
exec 9<>"$DIR/never"
holds() { # an engine of b with two open sessions, until HOLDER is killed
    "$TERN_BUILD/tests/holder" hold "$DIR/b/default.sock" <&9 >"$DIR/holder.out" &
    HOLDER=$! PIDS[holder]=$!
    wait_for "the engine" grep -q ready "$DIR/holder.out"
}
tool() { value "j['$1']" <"$DIR/json"; }
done_with() { echo "ok: $*"; }

# ---- two hosts, and their figures
certificates 30
configure a "{name: b, address: \"127.0.0.1:${PORT[b]}\", tenants: [default]}"
configure b "{name: a, address: \"127.0.0.1:${PORT[a]}\", tenants: [default]}"
# The disk of a is a file system of its own if this user may mount one.
DISK=() DISK_BYTES=24M
mkdir "$DIR/a/disk"
if unshare --mount true 2>/dev/null && unshare --mount mount -t tmpfs -o "size=$DISK_BYTES" disk "$DIR/a/disk" 2>/dev/null; then
    # shellcheck disable=SC2016
    DISK=(unshare --mount bash -c 'mount -t tmpfs -o "size=$1" disk "$2" && shift 2 && exec "$@"' mounted "$DISK_BYTES" "$DIR/a/disk")
fi
printf 'spill: {dir: %s, bytes: 8M, headroom: 8M, threads: 1, interval: 64, align: 64}\n' "$DIR/a/disk" >>"$DIR/a/config.yaml"
[[ ${#DISK[@]} -gt 0 ]] || printf 'fault_disk_full_after: 1\n' >>"$DIR/a/config.yaml"
start a "${DISK[@]}"
start b
for node in a b; do
    tern-agent --listen 127.0.0.1:0 --socket "$DIR/$node/admin.sock" 2>"$DIR/$node/agent.out" &
    PIDS[agent_$node]=$!
    wait_for "tern-agent" grep -q "listens at" "$DIR/$node/agent.out"
    URL[$node]=$(sed -n 's/.*listens at \(.*\)\/$/\1/p' "$DIR/$node/agent.out")
    says $node "event=link_up .*peer=[ab] "
    shown $node tern_peers_up 1
done
replay --seed 1
shown b 'tern_prompt_tokens_total{tenant="default"}' "$(tool prompt_tokens)"
shown b 'tern_transfer_bytes_total{peer="a",transport="tcp"}' $((512 * $(tool transferred_pages)))
says b "event=engine_joined .*tenant=default"
[[ -z $(alarms a)$(alarms b) ]] || fail "alarms on a quiet day: a: $(alarms a), b: $(alarms b)"
done_with "two hosts by TLS: $(tool prompt_tokens) prompt tokens, $(tool transferred_pages) pages"

# ---- a new peer
configure c ""
start c
ctl a peer add c "127.0.0.1:${PORT[c]}" --tenants default >/dev/null
ctl c peer add a "127.0.0.1:${PORT[a]}" --tenants default >/dev/null
says a "event=peer_joined peer=c"
says a "event=operator_done act=peer-add pid=[0-9]* uid=$(id -u)"
shown a tern_peers_up 2
shown a 'tern_peer_up{peer="c"}' 1
done_with "a new peer"

# ---- a new tenant
for node in a b; do
    sed -i "s|^reserve:|  - {name: second, socket: $DIR/$node/second.sock}\n&|; s|tenants: \[default\]}|tenants: [default, second]}|" "$DIR/$node/config.yaml"
    ctl $node reload --dry-run >"$DIR/out" && grep -q "second.*would be done" "$DIR/out" || fail "$node: $(cat "$DIR/out")"
    ctl $node reload >/dev/null || fail "reload of $node"
    says $node "event=tenant_joined tenant=second"
done
shown a tern_peers_up 2 # the links are made anew, with the new tenant
shown b tern_peers_up 1
TENANT=second replay --seed 10
shown b 'tern_prompt_tokens_total{tenant="second"}' "$(tool prompt_tokens)"
done_with "a new tenant"

# ---- certificates: a restarted peer presents a new one, and links with the old ones stay up
before=$(metric a tern_certificate_left_seconds)
certificates 300
for node in a b c; do
    ctl $node reload >/dev/null || fail "reload of $node"
done
newer() { [[ $(metric a tern_certificate_left_seconds | cut -d. -f1) -gt $((${before%.*} + 200 * 86400)) ]]; }
wait_for "the certificate's time" newer
[[ $(grep "event=tls cert=" "$DIR/a/log" | sed 's/.*not_after=//' | uniq | wc -l) == 2 ]] ||
    fail "the new certificate is not logged: $(grep event=tls "$DIR/a/log")"
shows a tern_peers_up 2 || fail "a link went down"
replay --seed 2
done_with "certificates rotated"

# ---- a disk that fills, and has room again
if [[ ${#DISK[@]} -gt 0 ]]; then
    nsenter --mount="/proc/${PIDS[a]}/ns/mnt" dd if=/dev/zero of="$DIR/a/disk/another" bs=1M count=20 status=none
fi
for seed in 3 4 5 6; do # prefixes that are not stored yet
    "$TERN_BUILD/tests/holder" put "$DIR/a/default.sock" 16 $seed >/dev/null || fail "holder"
done
wait_for "the alarm" alarm_on a spill_full
says a "level=warn event=spill_full .*action="
shown a 'tern_alarms{name="spill_full",severity="warn"}' 1
replay --seed 7
if [[ ${#DISK[@]} -gt 0 ]]; then
    nsenter --mount="/proc/${PIDS[a]}/ns/mnt" rm "$DIR/a/disk/another"
    wait_for "its end" alarm_off a spill_full
    says a "event=spill_full_ended"
fi
done_with "a disk that fills"

# ---- an engine dies
holds
kill -9 "$HOLDER"
wait "$HOLDER" 2>/dev/null || true
says b "event=engine_process_exited .*pid=$HOLDER"
says b "event=engine_gone"
shown b tern_engine_processes_exited_total 1
shown b 'tern_sessions' 0
replay --seed 8
done_with "an engine dies"

# ---- a host is drained, and the drain is cancelled
holds
ctl b drain >/dev/null
says b "event=draining"
shown b tern_draining 1
wait_for "routers to be told" bash -c "[[ \$(curl -s -o /dev/null -w '%{http_code}' '${URL[b]}/readyz') == 503 ]]"
ctl b undrain >/dev/null
says b "event=undrained"
shown b tern_draining 0
kill -9 "$HOLDER"
wait "$HOLDER" 2>/dev/null || true
done_with "a drain, taken back"

# ---- an upgrade of one host: the other one serves, and reports it
ctl b drain --wait=60s >/dev/null || fail "drain --wait: $?"
wait "${PIDS[b]}" || fail "b ended with $?"
wait_for "the alarm" alarm_on a peer_down
says a "level=warn event=peer_down subject=b"
shown a 'tern_alarms{name="peer_down",severity="warn"}' 1
shown a 'tern_peer_up{peer="b"}' 0
shows a 'tern_peer_up{peer="c"}' 1 || fail "the other link went down"
start b
shown a 'tern_peer_up{peer="b"}' 1
wait_for "its end" alarm_off a peer_down
says a "event=peer_down_ended subject=b"
replay --seed 9
done_with "an upgrade of one host"
[[ -z $(alarms a)$(alarms b)$(alarms c) ]] || [[ ${#DISK[@]} -eq 0 ]] || fail "alarms at the end: a: $(alarms a), b: $(alarms b), c: $(alarms c)"
echo "day: ok"

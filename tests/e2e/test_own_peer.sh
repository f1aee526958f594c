#!/usr/bin/env bash
# Prefill and decode over one daemon that is its own peer, in the clear and with TLS: prefixes and tickets move between
# its pools, also where sessions are aborted and fetches cancelled; every byte is compared. No byte of
# a page goes over a connection, but of pools of another layout.
source "$(dirname "$0")/replay_lib.sh"
needs openssl "to make certificates"

# own SECURITY: a daemon called own, and what it takes to be linked with itself
own() {
    local port
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    cat >"$DIR/$1.yaml" <<YAML
node: own
listen: 127.0.0.1:$port
page_bytes_min: 512
admin: {socket: $DIR/$1.admin}
tenants:
  - {name: t, socket: $DIR/$1.sock, memory: 64M}
peers:
  - {name: own, address: "127.0.0.1:$port", tenants: [t]}
$2
YAML
    "$TERND" --config "$DIR/$1.yaml" >"$DIR/$1.out" 2>&1 &
    PIDS[$1]=$!
    ready "${PIDS[$1]}" "$DIR/$1.out"
    wait_for "the link to itself" linked "$1"
    SIDES=(--prefill "$DIR/$1.sock,$DIR/$1.admin" --decode "$DIR/$1.sock,$DIR/$1.admin" --peer own)
}
peers() { "$CTL" --socket "$DIR/$1.admin" peers --json; }
linked() {
    peers "$1" | python3 -c 'import json, sys; p, = json.load(sys.stdin)["peers"]; sys.exit((p["state"], p["transport"]) != ("up", "local"))'
}

echo "pools of another layout"
TERN_OWN_PEER=1 "$TERN_BUILD/tests/e2e_test_reshard_words" || fail "pools of another layout"

for security in clear tls; do
    [[ $security == clear ]] || bash "$TERN_SOURCE/deploy/make-certs.sh" "$DIR/certs" own
    case $security in
    clear) own clear "insecure_peers: true" ;;
    tls) own tls "tls: {ca: $DIR/certs/ca.pem, cert: $DIR/certs/own.pem, key: $DIR/certs/own.key}" ;;
    esac
    played "${SIDES[@]}" --sessions 8 --turns 4
    [ "$(field transferred_pages)" -gt 0 ] || fail "nothing has moved"
    json "$("$CTL" --socket "$DIR/$security.admin" stats --json)" \
        "[p['bytes_in']['local'] for p in j['peers']] == [$(field transferred_bytes)]"
    played "${SIDES[@]}" --tickets --profile hybrid --page-bytes 512 --sessions 8 --turns 4 --aborts 0.3 --concurrency 4
    is lost_tickets 0
    [ "$(field tickets_taken)" -gt 0 ] || fail "no ticket was taken"
    kill "${PIDS[$security]}"
    wait "${PIDS[$security]}" || fail "the daemon ended with $?"
    unset "PIDS[$security]"
done

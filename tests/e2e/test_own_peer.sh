#!/usr/bin/env bash
# Prefill and decode over one daemon that is its own peer, in the clear and with TLS: prefixes and
# tickets move between its pools, also when sessions are aborted and fetches cancelled; every byte
# is compared. Page bytes go over a connection only between pools of different layouts.
source "$(dirname "$0")/replay_lib.sh"
needs openssl "to make certificates"

echo "pools of another layout"
TERN_OWN_PEER=1 "$TERN_BUILD/tests/e2e_test_reshard_words" || fail "pools of another layout"

for security in clear tls; do
    [[ $security == clear ]] || bash "$TERN_SOURCE/deploy/make-certs.sh" "$DIR/certs" own
    case $security in
    clear) own_peer clear "" "insecure_peers: true" ", transport: auto" ;;
    tls) own_peer tls "" "tls: {ca: $DIR/certs/ca.pem, cert: $DIR/certs/own.pem, key: $DIR/certs/own.key}" ;;
    esac
    own_asked $security peers >"$DIR/peers"
    grep -qE ' local +t +the peer is this daemon itself' "$DIR/peers" || fail "of a peer that needs nothing: $(cat "$DIR/peers")"
    json "$(own_asked $security peers --json)" "[(p['connections']['limit'], p['paths']) for p in j['peers']] == [(0, [])]"
    ! grep event=transport "$DIR/$security.out" || fail "nothing falls back from RDMA"
    played "${SIDES[@]}" --sessions 8 --turns 4
    [ "$(field transferred_pages)" -gt 0 ] || fail "nothing has moved"
    json "$(own_asked $security stats --json)" \
        "[p['bytes_in']['local'] for p in j['peers']] == [$(field transferred_bytes)]"
    played "${SIDES[@]}" --tickets --profile hybrid --page-bytes 512 --sessions 8 --turns 4 --aborts 0.3 --concurrency 4
    is lost_tickets 0
    [ "$(field tickets_taken)" -gt 0 ] || fail "no ticket was taken"
    own_ends $security
done

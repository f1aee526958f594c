#!/usr/bin/env bash
# One daemon with TLS and one in the clear are each other's peer: both detect the difference from
# the first bytes, whoever dials, and report the setting.
source "$(dirname "$0")/with_ternd.sh"
bash "$TERN_SOURCE/deploy/make-certs.sh" "$DIR/certs" secure clear

free_ports SECURE CLEAR

peer_of() { # NODE PORT
    echo "name=$1,address=127.0.0.1:$2,tenants=t0"
}

ternd_run secure --listen "127.0.0.1:$SECURE" --tls.ca "$DIR/certs/ca.pem" --tls.cert "$DIR/certs/secure.pem" \
    --tls.key "$DIR/certs/secure.key" --tenant "name=t0,socket=$DIR/secure/t0.sock,memory=16M" \
    --peer "$(peer_of clear "$CLEAR")"
ternd_run clear --listen "127.0.0.1:$CLEAR" --insecure_peers --tenant "name=t0,socket=$DIR/clear/t0.sock,memory=16M" \
    --peer "$(peer_of secure "$SECURE")"

tells() { # NODE PATTERN: it has logged that warning
    wait_for "$1: $2" grep -q "level=warn event=$2" "$DIR/$1/log"
}

WHY="the other side does not use TLS: set \`tls\` there"
tells secure "tls_refused link=.* peer=\"\" dir=in from=127.0.0.1:[0-9]* reason=clear_text detail=\"$WHY"
tells secure "tls_refused link=.* peer=clear dir=out from=\"\" reason=clear_text detail=\"$WHY"
WHY="the other side uses TLS, and this daemon does not: set \`tls\` here"
tells clear "tls_unexpected link=.* peer=\"\" dir=in reason=\"$WHY"
tells clear "tls_unexpected link=.* peer=secure dir=out reason=\"$WHY"
cause() { # NODE: why its peer cannot be reached
    "$CTL" --socket "$DIR/$1/admin.sock" peers --json | value "j['peers'][0]['last_error']"
}
[[ $(cause secure) == "TLS refused: clear_text: the other side does not use TLS"* ]] || fail "$(cause secure)"
[[ $(cause clear) == "the other side uses TLS, and this daemon does not"* ]] || fail "$(cause clear)"
json "$("$CTL" --socket "$DIR/secure/admin.sock" peers --json)" "j['tls']['refused_unnamed']['clear_text'] > 0"
echo "clear text: ok"

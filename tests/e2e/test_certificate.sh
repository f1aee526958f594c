#!/usr/bin/env bash
# A certificate close to its end, and one of another CA: the log and ternctl report both while links
# are up.
source "$(dirname "$0")/with_ternd.sh"
[[ -z $SANITIZE ]] || skip "a sanitizer has to be the first library"
"$CC" -std=gnu17 -O1 -shared -fPIC -o "$DIR/interpose.so" "$HERE/interpose_clock.c" -ldl
DAYS=10 bash "$TERN_SOURCE/deploy/make-certs.sh" "$DIR/certs" e2e
bash "$TERN_SOURCE/deploy/make-certs.sh" "$DIR/other" e2e
DAY=$((24 * 3600))

# ahead SECONDS: moves the daemon's time
ahead() {
    echo "$1" >"$DIR/ahead.new"
    mv "$DIR/ahead.new" "$DIR/ahead"
}

ahead $((8 * DAY))
export INTERPOSE_AHEAD=$DIR/ahead
TERND_PRELOAD=$DIR/interpose.so ternd_start "tls: {ca: $DIR/certs/ca.pem, cert: $DIR/certs/e2e.pem, key: $DIR/certs/e2e.key}" 16M 1
grep -q "event=tls cert=" "$DIR/log" || skip "this build has no TLS"
json "$("$CTL" status --json)" "1.9 * $DAY < j['certificate']['left_s'] < 2.1 * $DAY and j['certificate']['own_ca']"
[[ $("$CTL" status) != *certificate* ]] || fail "a warning while all is well"
ahead $((9 * DAY + DAY / 2))
wait_for "the warning" grep -q "level=warn event=certificate_expires .* left_s=43" "$DIR/log"
[[ $("$CTL" status) == *"warning: this node's certificate expires in "*"ternctl reload"* ]] || fail "$("$CTL" status)"
ahead $((11 * DAY))
wait_for "the alarm" grep -q "level=error event=certificate_expires .* left_s=-8" "$DIR/log"
[[ $("$CTL" status) == *"alarm: this node's certificate has expired"* ]] || fail "$("$CTL" status)"
[[ $(grep -c event=certificate_expires "$DIR/log") == 2 ]] || fail "not once each: $(cat "$DIR/log")"
ends 1 "has expired" "$CTL" reload

# a new certificate of another CA
cp "$DIR/other/e2e.pem" "$DIR/other/e2e.key" "$DIR/certs/"
ends 0 "warning: no CA in tls.ca has issued this node's certificate" "$CTL" reload --dry-run
json "$("$CTL" reload --dry-run --json)" "not j['own_ca']"
ends 0 "warning: no CA in tls.ca has issued this node's certificate" "$CTL" reload
grep -q "level=warn event=certificate_foreign cert=.*e2e.pem ca=.*certs/ca.pem" "$DIR/log" || fail "$(cat "$DIR/log")"
[[ $("$CTL" status) == *"no CA in tls.ca has issued"* ]] || fail "$("$CTL" status)"
ends 0 "warning: tls: .*e2e.pem: no CA in .*ca.pem has issued it" "$TERN_BIN/ternd" --config "$DIR/config.yaml" --check-config
ternd_stop
echo "certificate: ok"

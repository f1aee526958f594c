#!/usr/bin/env bash
# Sessions handed over by ticket, through two daemons: history, tail, STATE at the exact length and the blob arrive to the
# last byte. Among thousands that are aborted, cancelled, dropped, left to expire, retracted and forged, in pools that are
# too small on both sides, no page leaks and no ticket is lost. Some hundred hand-overs; 10,000 with TERN_FULL=1.
. "$(dirname "$0")/replay_lib.sh"

sessions=10
[ "${TERN_FULL:-0}" = 1 ] && sessions=220

# tickets ARGS...: checks what holds with tickets besides what always holds.
tickets() {
    replay --tickets "$@"
    is lost_tickets 0
    [ "$(field tickets)" -gt 0 ] || fail "nothing was handed over by ticket"
}

# Without trouble: each ticket is fetched once, and pages that the decode side has do not move.
for profile in tiny tiny-state hybrid deepseek-v4; do
    tickets --profile "$profile" --page-bytes 512 --sessions 8 --turns 4
    is tickets 32 tickets_taken 32 handed_again 0 tickets_dropped 0 tickets_expired 0
    is bytes_moved "$(field bytes_needed)"
    [ "$(field verified_tail_pages)" -gt 20 ] || fail "hardly any prompt had a tail"
done
tickets --profile tiny-state --ranks 2:2 --sessions 6 --turns 4 --concurrency 3
tickets --profile hybrid --sessions 6 --turns 4 --corrupt 40
is corrupt_detected 40

handed=0
# trouble ARGS...: half of the hand-overs meet trouble, and pools are too small.
trouble() {
    tickets --aborts 0.5 --seed "$seed" --sessions "$sessions" --turns 8 --concurrency 16 --prefill-tokens 512 "$@"
    handed=$((handed + $(field tickets)))
    [ "$(field tickets_taken)" -gt $((sessions * 6)) ] || fail "most tickets were not taken"
    for kind in abort away drop leave expire expire_race renew cancel close forge away_before away_after; do
        [ "$(field $kind)" -gt 0 ] || [ "$sessions" -lt 100 ] || fail "trouble of the kind $kind did not happen"
    done
    [ "$(field retracts)" -gt 0 ] || fail "no session gave way"
    [ "$(field tickets_dropped)" -gt 0 ] && [ "$(field tickets_expired)" -gt 0 ] || fail "no ticket was dropped, or none expired"
    echo "  tickets $(field tickets), of them taken $(field tickets_taken), handed over again $(field handed_again)," \
        "cancelled $(field cancelled_fetches), retries $(field retries), retracts $(field retracts), $(field elapsed_s) s"
}
seed=$((RANDOM + 1))
trouble --profile tiny --pool-pages 200
trouble --profile tiny --pool-pages 150 --host-pages 300 --ranks 2:2
trouble --profile tiny-state --pool-pages 150
trouble --profile tiny-state --pool-pages 150 --host-pages 300
trouble --profile hybrid --pool-pages 150
trouble --profile hybrid --pool-pages 150 --host-pages 300
echo "$handed hand-overs"
[ "$sessions" -lt 100 ] || [ "$handed" -ge 10000 ] || fail "fewer than 10,000 hand-overs"
echo "all passed"

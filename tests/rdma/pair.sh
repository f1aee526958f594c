#!/usr/bin/env bash
# One side of two daemons on two machines, joined by TLS and RDMA; run by test_pair.sh in the guests of `lab.sh pair`.
#   pair.sh source        commits; is killed while the destination fetches
#   pair.sh source-again  the same machine, booted again: its old handles are GONE, and it serves again
#   pair.sh dest          fetches: everything; at 5 % packet loss; while the source dies; from the rebooted source
#   pair.sh source-kept   commits; keeps its pages with none pinned after the destination was killed
#   pair.sh dest-killed   fetches, and is killed
#   pair.sh dest-again    the same machine, booted again: fetches both sets of prefixes whole
# TLS: folder of certificates. PREFIXES: of tiny-state (2000). LOST: prefixes at packet loss (60).
. "$(dirname "${BASH_SOURCE[0]}")/verbs_lib.sh"
MEMORY=320M
state=(--prefixes "${PREFIXES:-2000}" --pool-pages 10000)
lossy=(--seed 2 --prefixes "${LOST:-60}" --pool-pages 1000)
# A machine that stands still for seconds may lose a path; then a fetch is retried, as engines would. `large` is
# about 80 MB, which takes seconds over the cable that `slowly` leaves: a machine that is killed once 8 MB have
# arrived is killed in the middle, however fast it is. A transfer's deadline is 15 s.
large=(--profile tiny --page-bytes 65536 --prefixes 4 --chunks 512 --pool-pages 2048 --seed 3)
deadlines=(--deadlines.transfer_ms 15000)
ends_ms=25000 # and below the 30 s of a daemon without these settings

source_daemon() { daemon source 7701 dest "$LAB_PEER_IP:7702" "${deadlines[@]}"; }
dest_daemon() { daemon dest 7702 source "$LAB_PEER_IP:7701" "${deadlines[@]}"; }
path_up() { wait_for 200 "a path to the source" goes_by dest verbs; }

slowly() { tc qdisc add dev "$LAB_IF" root netem limit 20000 rate 160mbit || fail "netem"; }
losing() { tc qdisc add dev "$LAB_IF" root netem loss 5% || fail "netem"; }

# fetch WHAT OPTION...
fetch() {
    echo "-- $1"
    half dest fetch "${@:2}" 2>&1 | tee "$DIR/fetch"
    local rc=${PIPESTATUS[0]}
    [[ $rc -eq 0 ]] || fail "$1: exit status $rc"
}

case $1 in
source)
    source_daemon
    half source commit "${state[@]}" --handles "$LAB_SHARE/handles" || fail commit
    half source commit "${lossy[@]}" || fail commit
    half source commit "${large[@]}" || fail commit
    lab_signal committed
    lab_wait lossy 300 && losing
    lab_signal losing
    lab_wait lossless 300 && tc qdisc del dev "$LAB_IF" root
    slowly
    lab_signal slow
    lab_wait killed 300
    fail "nobody killed this machine"
    ;;
source-again)
    source_daemon
    half source gone "${state[@]}" --handles "$LAB_SHARE/handles" || fail "old handles"
    half source commit "${large[@]}" || fail commit
    lab_signal again
    lab_wait done 300 || fail "the destination does not end"
    ;;
dest)
    dest_daemon
    lab_wait committed 300 || fail "the source does not commit"
    path_up
    ctl dest peers
    fetch "all, between two machines" "${state[@]}" --tries 20
    all_by_verbs dest
    losing
    lab_signal lossy
    lab_wait losing || fail "the source loses no packets"
    fetch "at 5 % packet loss" "${lossy[@]}" --may-fail --ends-ms $ends_ms --settle-ms 20000
    lab_signal lossless
    tc qdisc del dev "$LAB_IF" root
    lab_wait slow || fail "the source is not ready to die"
    path_up
    fetch "the source dies" "${large[@]}" --may-fail --ends-ms $ends_ms --settle-ms 20000 --tell-bytes 8000000
    grep -Eq 'fetches that ended so: [0-9]+: the (other host|deadline)' "$DIR/fetch" || fail "no fetch was broken"
    lab_wait again 300 || fail "the source does not come back"
    path_up
    fetch "from the source that is back" "${large[@]}" --tries 20
    all_by_verbs dest
    grep -h event=transport "$DIR"/dest/log
    lab_signal done
    ;;
source-kept)
    source_daemon
    half source commit "${large[@]}" || fail commit
    slowly
    lab_signal committed
    lab_wait killed 300 || fail "the destination was not killed"
    [[ $(told source data pages_out) -gt 0 ]] || fail "nothing had left when it was killed"
    tc qdisc del dev "$LAB_IF" root
    half source check "${large[@]}" --settle-ms 30000 || fail "pages, or pins"
    half source commit "${large[@]}" || fail commit
    half source commit "${state[@]}" || fail commit
    lab_signal again
    lab_wait done 300 || fail "the destination does not end"
    ;;
dest-killed)
    dest_daemon
    lab_wait committed 300 || fail "the source does not commit"
    path_up
    fetch "and is killed" "${large[@]}" --tell-bytes 8000000
    sleep 60
    fail "nobody killed this machine"
    ;;
dest-again)
    lab_signal killed
    dest_daemon
    lab_wait again 300 || fail "the source has nothing"
    path_up
    ctl dest peers
    fetch "all, after it came back" "${state[@]}" --tries 20
    fetch "and what was broken off" "${large[@]}" --tries 20
    all_by_verbs dest
    lab_signal done
    ;;
esac
[[ $1 == source-again || $1 == dest* || $1 == source-kept ]] && stop_daemons
echo "pair $1: ok"

#!/usr/bin/env bash
# In one lab guest, after two_devices: two daemons with two rails each and a cable a rail; the second cable fails while
# pages are on their way. All pages must arrive, by RDMA: those under way over the second rail are sent over the first.
# When the cable works again, its path is made anew and carries pages. Pages go from a to b, or from b to a.
#   rails.sh CUT:WAY...   one after the other, e.g. silent:ab carrier:ba
# silent: the cable delivers nothing, and neither end knows: a path is made anew at once and fails again. carrier: a's
# port is down, so b's has no carrier, and no path can be made until a's port is up.
. "$(dirname "${BASH_SOURCE[0]}")/two_devices.sh"
. "$(dirname "${BASH_SOURCE[0]}")/verbs_lib.sh"
LISTEN=127.0.0.1 MEMORY=24M
rate=(rate 30mbit delay 1ms)
pool=(--profile tiny --page-bytes 16384 --pool-pages 1100 --in-flight 12)
# `many` is about 13 MB, more than 3 s of one cable: when a lost path is reported, after 2 s, the
# other one has worked. `few` is 2 MB.
many=(--prefixes 40 --chunks 40) few=(--prefixes 12 --chunks 20)
started=400000 # bytes over the second rail, before its cable goes
carries=500000 # bytes over it once it works again
late=300000    # may be on their way through the guest's kernel when a cable goes

second_cable() {
    ip link add veth2 type veth peer name veth3 || return 1
    ip link set veth2 mtu "$LAB_MTU" up && ip link set veth3 mtu "$LAB_MTU" up || return 1
    device rxe2 veth2 10.79.0.1 && device rxe3 veth3 10.80.0.1 && through_cable 3 veth2 10.79.0.1 veth3 10.80.0.1
}

cable_goes() {
    case $1 in
    silent) netem "veth2 veth3" loss 100% ;;
    carrier) ip link set veth2 down ;;
    *) return 1 ;;
    esac
}

cable_comes() {
    case $1 in
    silent) netem "veth2 veth3" "${rate[@]}" ;;
    carrier) ip link set veth2 up && to_peer 3 veth2 10.79.0.1 veth3 10.80.0.1 ;;
    esac
}

# came DEVICE: sets n to the bytes received so far if all packets were full. Starts no process.
came() {
    read -r n <"/sys/class/infiniband/$1/ports/1/hw_counters/rcvd_pkts"
    n=$((n * 4096))
}

nap() { read -r -t 0.01 -u "$idle" _; }

# paths NODE STATE STATE: true if its two rails have these states
paths() {
    local row states=
    ctl "$1" peers --wide >"$DIR/peers" || return 1
    while read -ra row; do
        [[ ${row[0]} == path ]] && states+=" ${row[2]}"
    done <"$DIR/peers"
    [[ $states =~ ^\ ($2)\ ($3)$ ]]
}

# figures NODE DEVICE: sets failed, again and told; every page that arrived must have come by RDMA.
figures() {
    local name value pages=()
    ctl "$1" status --json >"$DIR/status" || fail "status"
    while read -r name value; do
        case $name in
        pages_in) pages+=("$value") ;; # of all, then by RDMA
        paths_failed) failed=$value ;;
        pieces_again) again=$value ;;
        esac
    done < <(sed -n '/"data": {/,/"cq_events"/{s/[",:]//g; p}' "$DIR/status")
    told=$(grep -c "event=path_failed .* device=$2 way=in" "$DIR/$1/log")
    echo "pages=${pages[0]} by_rdma=${pages[1]} paths_failed=$failed pieces_again=$again"
    [[ ${pages[0]} == "${pages[1]}" ]] || fail "pages did not move by RDMA"
}

# transfers SOURCE DEST: starts the fetch, and returns once the second rail carries pages.
transfers() {
    half "$2" fetch "${pool[@]}" "${many[@]}" --peer "$1" --seed "$seed" >"$DIR/fetch" 2>&1 &
    fetch=$!
    until came "$second" && ((n - from2 > started)); do
        kill -0 "$fetch" 2>/dev/null || fail "all came before the cable went: $(cat "$DIR/fetch")"
        nap
    done
}

# lose CUT SOURCE DEST FIRST SECOND: FIRST and SECOND are the destination's devices
lose() {
    local cut=$1 source=$2 dest=$3 first=$4 second=$5 fetch from1 from2 cut1 cut2 failed again told had
    half "$source" commit "${pool[@]}" "${many[@]}" --seed "$seed" || fail "commit"
    half "$source" commit "${pool[@]}" "${few[@]}" --seed "1$seed" || fail "commit"
    figures "$dest" "$second"
    had=("$failed" "$again" "$told")
    came "$first" && from1=$n
    came "$second" && from2=$n
    transfers "$source" "$dest"
    cable_goes "$cut" || fail "the cable does not go"
    came "$second" && cut2=$n
    came "$first" && cut1=$n
    if [[ $cut == carrier ]]; then
        wait_for 120 "a path that is down" paths "$dest" ready 'making|offered|connecting|paused'
        cat "$DIR/peers"
    fi
    wait "$fetch" || fail "the transfers: $(cat "$DIR/fetch")"
    cat "$DIR/fetch"
    came "$first"
    echo "bytes before the cut: $((cut1 - from1)) and $((cut2 - from2)); after: $((n - cut1)) over the first"
    ((cut1 > from1 && cut2 > from2)) || fail "one rail carried nothing"
    came "$second"
    ((n - cut2 < late)) || fail "$((n - cut2)) bytes came out of the cable that is cut"
    figures "$dest" "$second"
    ((failed > had[0] && again > had[1])) || fail "no path was lost, or nothing was under way over it"
    ((told > had[2])) || fail "the log does not name it"
    again_carries
}

# The lost path was made anew; it counts as ready once pages have arrived over it.
again_carries() {
    local n from2
    cable_comes "$cut" || fail "the cable does not come back"
    wait_for 120 "the path, made again" paths "$dest" ready unproven
    came "$second" && from2=$n
    for _ in {1..10}; do # the first rail carries all until a piece arrives over this one: long on a busy machine
        half "$dest" fetch "${pool[@]}" "${few[@]}" --peer "$source" --seed "1$seed" --tries 20 || fail "fetch"
        came "$second"
        ((n - from2 > carries)) && break
        ctl "$dest" evict >/dev/null || fail "evict"
    done
    echo "bytes over the path that was made again: $((n - from2))"
    ((n - from2 > carries)) || fail "it carries nothing"
    paths "$dest" ready ready || fail "it is not ready: $(cat "$DIR/peers")"
    figures "$dest" "$second"
}

second_cable || fail "no second cable"
netem "veth0 veth1 veth2 veth3" "${rate[@]}" || fail "netem"
daemon a 7701 b 127.0.0.1:7702 --rdma_device rxe0+rxe2
daemon b 7702 a 127.0.0.1:7701 --rdma_device rxe1+rxe3
wait_for 120 "paths" paths a ready ready
wait_for 120 "paths" paths b ready ready
seed=1
for what in "$@"; do
    echo "-- the second cable goes: $what"
    case $what in
    *:ab) lose "${what%:*}" a b rxe1 rxe3 ;;
    *:ba) lose "${what%:*}" b a rxe0 rxe2 ;;
    *) fail "no way is called $what" ;;
    esac
    seed=$((seed + 1))
done
grep -h event=path_ "$DIR"/*/log
stop_daemons
echo "rails: ok"

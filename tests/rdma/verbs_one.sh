#!/usr/bin/env bash
# Runs the tests of one lab guest, step by step. Each step prints its time; the first failure ends
# the run. A guest has one processor, so there are two parts, each with a guest of its own:
#   verbs_one.sh transport   the transport's own tests, a peer that dies, rails; run by test_verbs.sh
#   verbs_one.sh daemons     two daemons with engines; run by test_verbs_daemons.sh
#   INTERPOSE   tests/e2e/interpose_alloc.c, compiled
#   CERTS       certificates of prefill and decode
#   SESSIONS    sessions of four requests each, for the two daemons with tern-replay
#   XA_S        seconds of X-a
#   RAILS       how a rail fails: see rails.sh
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/two_devices.sh"
export TERN_PEER_TRANSPORT=verbs

step() { # NAME COMMAND...
    local name=$1 start=$SECONDS
    shift
    echo "== $name"
    if ! "$@"; then
        echo "FAILED: $name"
        exit 1
    fi
    echo "== $name: $((SECONDS - start)) s"
}

watched() { bash "$here/../e2e/noalloc.sh" "$INTERPOSE" "$@"; }

replay() {
    "$TERN_BIN/tern-replay" --spawn --tls "$CERTS" --profile tiny-state --sessions "$SESSIONS" --turns 4 --concurrency 4 "$@"
}

export TERN_PERFTEST="bash $here/perftest.sh one" LAB_ITERATIONS=400

cable() {
    two_devices && two_devices_netem rate 200mbit delay 2ms
}

xa() {
    TERN_XA_S=$XA_S TERN_RDMA_DEVICE_source=rxe0 TERN_RDMA_DEVICE_dest=rxe1 "$TERN_BUILD/tests/e2e_test_xa"
}

transport() {
    step "paths" "$TERN_BUILD/tests/test_xfer_verbs"
    step "pushes" "$TERN_BUILD/tests/test_xfer_push"
    step "a peer that dies or hangs" "$TERN_BUILD/tests/e2e_test_peer_killed"
    # Outside a guest this test has the label e2e.
    [[ -z ${TERN_FULL:-} ]] || step "strangers" "$TERN_BUILD/tests/e2e_test_tls"
    step "the cable" cable
    step "a rail that goes in mid-transfer, and comes back" bash "$here/rails.sh" $RAILS
}

daemons() {
    export -f replay xa
    step "huge pages" bash "$here/huge_pages.sh"
    SESSIONS=4 step "what doctor says" bash "$here/verbs_replay.sh"
    step "memory of GPUs" bash "$here/verbs_gpu.sh"
    step "what the self-test finds" bash "$here/self_test.sh"
    step "8 devices for 8 GPUs" bash "$here/nics.sh"
    step "pools of another layout" "$TERN_BUILD/tests/e2e_test_reshard_words"
    step "two daemons, no allocation" watched bash -c "replay --push"
    step "the cable" cable
    step "aborts at random points (X-a), no allocation either" watched bash -c xa
}

step "a second device" second_device
case $1 in
transport | daemons) "$1" ;;
*) echo "FAILED: no part is called $1" && exit 1 ;;
esac

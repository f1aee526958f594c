#!/usr/bin/env bash
# The lab itself: figures of perftest in one guest, a named timeout, and no QEMU left behind by a
# lab that was killed. Run by ctest, label rdma. TERN_FULL=1: perftest between two guests, too, and
# a host that loses power in the middle of RDMA READs and comes back. The printed figures are
# emulated: compare them only with others of the same machine.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/judge_lib.sh"
need ib_read_bw perftest
lab=$here/lab.sh
cache=$TERN_BUILD/rdma-lab
programs="ib_read_bw ib_write_bw"

try "one guest" one "ibv_devinfo -d rxe0 | grep -E 'hca_id|state|active_mtu'; bash '$here/perftest.sh' one $programs && exit 3"
expect 3 'PORT_ACTIVE' 'ib_read_bw one .* iterations=[1-9]' 'ib_write_bw one .* iterations=[1-9]'

# test_pair.sh has two guests and kills one, so these steps run in the long form alone.
if [[ ${TERN_FULL:-0} == 1 ]]; then
    try "two guests" pair "bash '$here/perftest.sh' server $programs" "bash '$here/perftest.sh' client $programs"
    expect 0 'b| .*ib_read_bw pair .* iterations=[1-9]' 'b| .*ib_write_bw pair .* iterations=[1-9]'

    # Guest a reads from b without end; b loses power; a's QP ends in "transport retry counter exceeded" (12).
    read_all='ib_read_bw -R --retry_count=3 -d rxe0 -s 65536 -n 500000 -F'
    try "a host loses power and comes back" --kill b:reading --restart b:"bash '$here/perftest.sh' server ib_read_bw" pair \
        "lab_wait ready; sleep 1; (sleep 2; echo reading) & timeout 60 $read_all \$LAB_PEER_IP 2>&1 | grep status
         wait; bash '$here/perftest.sh' client ib_read_bw" \
        "lab_signal ready; $read_all >/dev/null 2>&1; echo 'source: ended by itself'"
    expect 0 'lab: b: killed at "reading"' 'a| .*Failed status 12' 'a| .*ib_read_bw pair .* iterations=[1-9]'
    unexpected 'ended by itself'
fi

try "a timeout" --timeout 3 one 'echo begun; sleep 60; echo ended'
expect 124 'begun' 'one: timeout: the command took more than 3 s'
unexpected '^ended'

echo "-- a lab that is killed"
"$lab" one 'sleep 60' >"$log" 2>&1 &
run=$cache/run.$!
within 120 test -s "$run/one.1/pid"
qemu=$(cat "$run/one.1/pid")
sleep 1
kill -0 "$qemu" || wrong "QEMU was not running"
kill -KILL "${run##*.}"
wait 2>/dev/null
is_gone() { [[ ! -e /proc/$qemu || $(awk '{print $3}' "/proc/$qemu/stat") == Z ]]; }
within 60 is_gone && echo "   QEMU went with it" || wrong "QEMU outlived its lab"
judge

#!/usr/bin/env bash
# Pages by RDMA over soft-RoCE in one guest: the transport's own tests by verbs_one.sh. Run by ctest, label rdma.
# TERN_FULL=1: longer. Time is emulated: only the ratio of throughputs means anything.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/judge_lib.sh"
need_build
need ib_write_bw perftest
rails='silent:ab carrier:ba'
[[ -n ${TERN_FULL:-} ]] && rails+=' carrier:ab silent:ba'

try "one guest" --timeout 1500 --mem 1536 one "RAILS='$rails' bash '$here/verbs_one.sh' transport"
unexpected SKIPPED
expect 0 'rails: ok' 'fault=6 .*violations=0 .*landed_in_live=0' 'fault=28 .*violations=0'
[[ -n ${TERN_FULL:-} ]] && expect 0 'fault=27'
# Measured always, judged in the long form only: other work moves single ratios between 0.3 and 3.
ratio=$(sed -nE "s/^throughput .* verbs_push .* ratio=([0-9.]+) .*/\1/p" "$log")
least=0.01
[[ -n ${TERN_FULL:-} ]] && least=0.8
awk -v r="${ratio:-0}" -v l=$least 'BEGIN { exit !(r >= l) }' || wrong "verbs_push: a ratio of ${ratio:-nothing}"
judge

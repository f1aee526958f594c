#!/usr/bin/env bash
# Pages by RDMA over soft-RoCE in one guest: two daemons with engines, run by verbs_one.sh. Run by
# ctest, label rdma. TERN_FULL=1: longer.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/judge_lib.sh"
need_build
certificates prefill decode
"${CC:-cc}" -std=gnu17 -O1 -g -fno-builtin -shared -fPIC -o "$certs/interpose.so" "$here/../e2e/interpose_alloc.c" || exit 1
sessions=25 xa_s=6
[[ -n ${TERN_FULL:-} ]] && sessions=500 xa_s=60

try "one guest" --timeout 1500 --mem 1536 one \
    "INTERPOSE='$certs/interpose.so' CERTS='$certs' SESSIONS=$sessions XA_S=$xa_s bash '$here/verbs_one.sh' daemons"
unexpected SKIPPED
expect 0 'verbs_replay: ok' 'region 0 of default, memory of the host: rxe0 (unknown distance)$' 'queue pairs: traffic class 0, service level 0, P_Key index 0; retried after 4.096 us x 2^16, 6 times$' 'region 0, on GPU-.*: registered with rxe0 as dma-buf; ring of 33,554,432 bytes of the host.s memory for pages that peers push$' 'verbs_gpu: pushes: ok' 'verbs_gpu: unregistered: ok' 'keys: a peer gets keys only to pages that it will write, until they have arrived; no peer can read$' 'self_test: ok' 'self-tests: 64 pairs in ' 'nics: ok' 'resharded over a link of transport=verbs reason=pages of pools of another layout arrive by tcp' 'wrong_bytes=0' 'fault=19 .*violations=0'
judge

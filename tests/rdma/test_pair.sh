#!/usr/bin/env bash
# Two daemons on two machines, with TLS between them and pages by RDMA: prefixes of tiny-state with every byte compared,
# 5 % packet loss, the source's machine losing power in mid-transfer and coming back, then the destination's. pair.sh
# has the part of each side. Run by ctest, label rdma. TERN_FULL=1: more prefixes.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/judge_lib.sh"
need_build
certificates source dest
PREFIXES=400 LOST=60
[[ -n ${TERN_FULL:-} ]] && PREFIXES=2000 LOST=400
side() { echo "TLS='$certs' PREFIXES=$PREFIXES LOST=$LOST bash '$here/pair.sh' $1"; }

source_dies() {
    try "the source dies" --timeout 600 --mem 1536 --kill b:'in the middle' --restart b:"$(side source-again)" \
        pair "$(side dest)" "$(side source)"
    expect 0 'a| pair dest: ok' 'b| pair source-again: ok' 'b| gone: both handles' \
        "a| fetched: prefixes=$PREFIXES whole=$PREFIXES .*wrong_bytes=0" "a| fetched: prefixes=$LOST .*wrong_bytes=0" \
        'a| source .* TLSv1.3 .* verbs'
}

destination_dies() {
    try "the destination dies" --timeout 600 --mem 1536 --kill a:'in the middle' --restart a:"$(side dest-again)" \
        pair "$(side dest-killed)" "$(side source-kept)"
    expect 0 'a| pair dest-again: ok' 'b| pair source-kept: ok' 'b| checked: .*wrong_bytes=0' 'b| emptied: nothing was pinned' \
        "a| fetched: prefixes=$PREFIXES whole=$PREFIXES .*wrong_bytes=0" 'a| source .* TLSv1.3 .* verbs'
}

source_dies
destination_dies
judge

#!/usr/bin/env bash
# Transports stand behind one interface. In the built objects no transport calls another, only the
# list of built-in ones (transports.c) names one, and none uses a function that reads the bytes of a
# page. The check must fail once, on calls that it has to refuse.
set -euo pipefail
build=${TERN_BUILD:?the build folder}
source_dir=$(realpath "${TERN_SOURCE:-$(dirname "$0")/../../..}")
archive=$build/daemon/seam/libtern_seam.a
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [[ ! -f $archive ]]; then
    echo "skipped: there is no seam in this build"
    exit 77
fi

# The folder of each object, as `NAME FOLDER`: tcp, local and verbs below seam/xfer are transports, with everything in them.
(cd "$source_dir/daemon/seam" && find . -name '*.c') | sed -E 's#^\./(.*)/([a-z0-9_]+)\.c$#\2 \1#; s#( xfer/[a-z0-9_]+)/.*#\1#' >"$work/folders"
[[ -z $(cut -d' ' -f1 "$work/folders" | sort | uniq -d) ]] || { echo "two files of the seam have one name"; exit 1; }

# Each use of a symbol of another file, as `FOLDER/CALLER FOLDER/CALLED SYMBOL`.
uses() {
    nm -A "$archive" 2>/dev/null | sed -n 's/^[^:]*:\([^:]*\)\.c\.o:[0-9a-f ]*\([A-Za-z]\) \(.*\)$/\1 \2 \3/p' | awk -v folders="$work/folders" '
        BEGIN { while ((getline < folders) > 0) where[$1] = $2 "/" $1 }
        $2 == "U" { wanted[++n] = $1 " " $3; next }
        $2 ~ /[TDBRV]/ { home[$3] = $1 }
        END {
            for (i = 1; i <= n; i++) {
                split(wanted[i], w, " ")
                print where[w[1]], (w[2] in home ? where[home[w[2]]] : "?/?"), w[2]
            }
        }'
}

forbidden() { # USES
    awk '
        function folder(file) { sub(/\/[^\/]*$/, "", file); return file }
        function transport(file) { return folder(file) ~ /^xfer\/(tcp|local|verbs)/ ? folder(file) : "" }
        transport($2) && transport($1) != transport($2) && $1 != "xfer/transports" { print "past the door: " $0 }
        transport($1) && ($2 ~ /^mem\/(checksum|mem_fault)/) { print "looks at pages: " $0 }' "$1"
}

printf '%s\n' 'xfer/tcp/ask xfer/verbs/path path_failed' 'xfer/flow/pulls xfer/tcp/ask tcp_request' \
    'xfer/verbs/reads mem/checksum checksum_unit' 'xfer/transports xfer/tcp/ask tcp_transport' \
    'xfer/tcp/ask xfer/flow/pulls batch_asked' 'mem/mem_verify mem/mem_fault mem_fault_try' >"$work/self"
[[ $(forbidden "$work/self" | wc -l) -eq 3 ]] || { echo "self-test: $(forbidden "$work/self")"; exit 1; }

uses >"$work/uses"
bad=$(forbidden "$work/uses")
if [[ -n $bad ]]; then
    echo "$bad"
    exit 1
fi
inside=$(grep -cE '^xfer/(tcp|local|verbs)/[a-z_]+ xfer/(flow|conn)/' "$work/uses")
[[ $inside -ge 20 ]] || { echo "only $inside calls of transports to the door: were they found?"; exit 1; }
echo "transports: $inside uses of what they share, none of each other"

#!/usr/bin/env bash
# The files of libtern call each other in one direction: each file calls only those above it in the list below, which
# client/libtern/internal.h explains. The check reads the built objects, and must fail once, on a reversed list.
set -euo pipefail
build=${TERN_BUILD:?the build folder}
archive=$build/client/libtern_client.a
order=(use socket sender send check leased pieces changes quick_put quick_get words stock pending call device steps brought async request ops batch lease lease_submit session handoff turn pool record subscribe chain tern block_lane block_stream block_copy blocks_ask blocks_sessions blocks_get blocks_put blocks_pin blocks blocks_queue)

if [[ ! -f $archive ]]; then
    echo "skipped: there is no libtern in this build"
    exit 77
fi

calls() { # ARCHIVE: lines "from to" between the files of the archive
    nm -A "$1" 2>/dev/null | sed -n 's/^[^:]*:\([^:]*\)\.c\.o:[0-9a-f ]*\([A-Za-z]\) \(.*\)$/\1 \2 \3/p' | awk '
        $2 == "U" { wanted[++n] = $1 " " $3; next }
        $2 ~ /[TDBRV]/ { home[$3] = $1 }
        END {
            for (i = 1; i <= n; i++) {
                split(wanted[i], w, " ")
                if (w[2] in home && home[w[2]] != w[1])
                    print w[1], home[w[2]]
            }
        }' | sort -u
}

backward() { # FILE...: calls down the list, or of files that are not in the list
    calls "$archive" | awk -v order="$*" '
        BEGIN { n = split(order, names, " "); for (i = 1; i <= n; i++) place[names[i]] = i }
        !($1 in place) || !($2 in place) || place[$1] < place[$2] { print $1 " calls " $2 }'
}

reversed=()
for name in "${order[@]}"; do reversed=("$name" "${reversed[@]}"); done
if [[ $(backward "${reversed[@]}" | wc -l) -lt 20 ]]; then
    echo "self-test: the list upside down should have been refused"
    exit 1
fi

bad=$(backward "${order[@]}")
if [[ -n $bad ]]; then
    echo "$bad"
    exit 1
fi
echo "libtern: $(calls "$archive" | wc -l) pairs of files, all in order"

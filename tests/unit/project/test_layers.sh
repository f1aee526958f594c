#!/usr/bin/env bash
# The layers: reads every #include edge of the sources and fails on one that the table below does not allow.
# The table is that of ARCHITECTURE.md, as data. --self-test proves that a forbidden edge is found.
set -euo pipefail
source_dir=$(realpath "${TERN_SOURCE:-$(dirname "$0")/../../..}")

# layer | folder | our headers it may include (patterns) | system and library headers that it may not
read -r -d '' table <<'TABLE' || true
base    | daemon/base  | base/*                                                             | +libc sys/mman.h xxhash.h
wire    | proto        | base/* proto/*                                                     | +libc protobuf-c/* xxhash.h arpa/inet.h net/if.h
core    | daemon/core  | base/* core/*                                                      | +pure
core    | daemon/core/arena | base/* core/core.h core/disk.h core/request.h core/query.h core/ids.h core/limits.h core/arena/* | +pure
core    | daemon/core/memory | base/* core/core.h core/disk.h core/request.h core/query.h core/ids.h core/limits.h core/arena/* core/memory/* | +pure
core    | daemon/core/tree | base/* core/core.h core/disk.h core/request.h core/query.h core/ids.h core/limits.h core/arena/* core/memory/* core/tree/* | +pure
core    | daemon/core/tier | base/* core/core.h core/busy.h core/disk.h core/request.h core/query.h core/ids.h core/limits.h core/arena/* core/memory/* core/tree/* core/tier/* | +pure
core    | daemon/core/disk | base/* core/core.h core/busy.h core/disk.h core/request.h core/query.h core/ids.h core/limits.h core/arena/* core/memory/* core/tree/* core/tier/* core/disk/* | +pure
core    | daemon/core/transfer | base/* core/core.h core/busy.h core/disk.h core/request.h core/query.h core/ids.h core/limits.h core/arena/* core/memory/* core/tree/* core/tier/* core/disk/* core/transfer/* | +pure
core    | daemon/core/session | base/* core/core.h core/busy.h core/disk.h core/request.h core/query.h core/ids.h core/limits.h core/arena/* core/memory/* core/tree/* core/tier/* core/disk/* core/transfer/* core/session/* | +pure
reshard | daemon/reshard | base/* reshard/* kernels/strided.h                               | +pure
seam    | daemon/seam  | base/* proto/* seam/* core/core.h core/disk.h core/request.h core/ids.h core/limits.h reshard/* kernels/strided.h kernels/driver.h kernels/kernels.h | +libc +system liburing.h setjmp.h xxhash.h xxh_x86dispatch.h immintrin.h infiniband/verbs.h openssl/*
xfer    | daemon/seam/xfer | base/* core/* seam/own_threads.h seam/io/io.h seam/io/io_threads.h seam/io/door.h seam/io/tcp_listen.h seam/mem/mem.h seam/mem/mem_pack.h seam/mem/mem_reshard.h seam/mem/mem_touch.h seam/mem/mem_verify.h seam/mem/numa.h seam/xfer/* reshard/* | +any
flow    | daemon/seam/xfer/flow | base/* core/* reshard/* seam/mem/mem.h seam/mem/mem_verify.h seam/mem/mem_reshard.h seam/xfer/xfer.h seam/xfer/flow/* | +libc endian.h stdatomic.h sys/socket.h netinet/in.h
conn    | daemon/seam/xfer/conn | base/* core/* seam/io/door.h seam/io/tcp_listen.h seam/mem/mem_pack.h seam/mem/numa.h seam/xfer/flow/* seam/xfer/conn/* | +any
tcp     | daemon/seam/xfer/tcp | base/* core/* seam/xfer/conn/data_conn.h seam/xfer/flow/transport.h seam/xfer/tcp/* reshard/* | +any
local   | daemon/seam/xfer/local | base/* core/* seam/mem/mem_touch.h seam/xfer/conn/data_conn.h seam/xfer/flow/transport.h seam/xfer/local/* | +any
verbs   | daemon/seam/xfer/verbs | base/* core/* seam/own_threads.h seam/mem/numa.h seam/mem/mem_pack.h seam/mem/mem_touch.h seam/mem/mem_verify.h seam/xfer/conn/data_conn.h seam/xfer/flow/transport.h seam/xfer/verbs/* | +any
shell   | daemon/shell | base/* proto/* seam/* core/* shell/* reshard/* kernels/strided.h | +any
client  | client       | base/* proto/* client/* tern.h tern_*.h seam/disk/disk.h seam/disk/disk_crypt.h shell/tape/tape.h kernels/driver.h kernels/kernels.h | +any
tape    | client/ctl/tape  | base/* core/core.h shell/tape/tape.h shell/tape/tape_codec.h client/ctl/tape/* | +any
kernels | kernels      | kernels/*                                                          | +libc +system dlfcn.h
TABLE
apart="client/ctl/tape" # only its own row applies to it, not that of the folder around it

# Headers that are no library: the meaning of each word in the last column.
libc="assert.h ctype.h errno.h inttypes.h limits.h stdalign.h stdarg.h stdbool.h stddef.h stdint.h stdio.h stdlib.h string.h"
pure="assert.h limits.h stdalign.h stdbool.h stddef.h stdint.h string.h" # no stdio, stdlib, time: the core has no outside world
system="dirent.h endian.h arpa/* fcntl.h linux/* net/* netdb.h netinet/* poll.h pthread.h sched.h semaphore.h signal.h stdatomic.h sys/* time.h unistd.h"

matches() { # NAME PATTERN...
    local name=$1 pattern
    shift
    for pattern in "$@"; do
        # shellcheck disable=SC2254
        case $name in $pattern) return 0 ;; esac
    done
    return 1
}

allowed_outside() { # NAME WORD...
    local name=$1 word
    shift
    for word in "$@"; do
        case $word in
        +any) return 0 ;;
        +libc) matches "$name" $libc && return 0 ;;
        +pure) matches "$name" $pure && return 0 ;;
        +system) matches "$name" $system && return 0 ;;
        *) matches "$name" $word && return 0 ;;
        esac
    done
    return 1
}

# Sets `found`: the name of an include in the table, if it is a file of ours: beside the including
# one, or below one of the roots.
our_name() { # INCLUDING-FILE NAME
    local dir=${1%/*} root
    for root in "$dir" "$tree/daemon" "$tree" "$tree/daemon/base" "$tree/client/libtern/include"; do
        if [[ -f $root/$2 ]]; then
            local path=$root/$2
            [[ $path == *..* ]] && path=$(realpath "$path")
            found=${path#"$tree"/}
            found=${found#daemon/}
            [[ $found == client/libtern/include/* ]] && found=${found##*/}
            return
        fi
    done
    found=
    case $2 in proto/*.pb-c.h) found=$2 ;; esac # generated by the build
}

check_tree() { # TREE: prints each forbidden edge
    local tree=$1 layer folder ours outside file line name found edges=0
    set -f # patterns in the table are not file names
    while IFS='|' read -r layer folder ours outside; do
        layer=${layer// /} folder=${folder// /}
        while IFS=: read -r file line; do
            [[ $line =~ include[[:space:]]*[\<\"]([^\>\"]+) ]] || { echo "forbidden: $layer: ${file#"$tree"/}: $line"; continue; }
            name=${BASH_REMATCH[1]}
            [[ $folder != "$apart" && $file == "$tree/$apart"/* ]] && continue
            our_name "$file" "$name"
            edges=$((edges + 1))
            if [[ -n $found ]]; then
                matches "$found" $ours || echo "forbidden: $layer: ${file#"$tree"/} includes $found"
            else
                allowed_outside "$name" $outside || echo "forbidden: $layer: ${file#"$tree"/} includes <$name>"
            fi
        done < <(grep -rHE --include='*.c' --include='*.h' --include='*.cu' '^[[:space:]]*#[[:space:]]*include' "$tree/$folder" 2>/dev/null || true)
    done <<<"$table"
    set +f
    echo "edges $edges"
}

self_test() { # each forbidden edge in a copy must be found, and nothing else
    local copy bad
    copy=$(realpath "$(mktemp -d)")
    trap 'rm -rf "$copy"' RETURN
    mkdir -p "$copy/daemon"/{base,core/tree,core/tier,reshard,shell,seam/mem,seam/xfer/tcp,seam/xfer/verbs} "$copy/proto" "$copy/client"/{libtern/include,ctl/tape} "$copy/kernels"
    touch "$copy/kernels/other.h" "$copy/daemon/reshard/plan.h" "$copy/daemon/base/err.h" "$copy/daemon/core/core.h" "$copy/daemon/core/arena.h" "$copy/daemon/core/tier/host.h" "$copy/daemon/seam/io.h" \
        "$copy/daemon/shell/log.h" "$copy/daemon/seam/mem/checksum.h" "$copy/daemon/seam/xfer/tcp/tcp.h" \
        "$copy/daemon/seam/xfer/verbs/verbs.h" "$copy/proto/frame.h" "$copy/client/libtern/include/tern.h"
    for bad in 'daemon/base/x.c core/core.h' 'daemon/base/x.c proto/frame.h' 'daemon/core/x.c seam/io.h' \
        'daemon/core/x.c time.h' 'daemon/core/x.c stdlib.h' 'daemon/core/x.c proto/frame.h' 'proto/x.c core/core.h' \
        'daemon/seam/x.c core/arena.h' 'daemon/seam/x.c ../core/arena.h' 'daemon/seam/x.c shell/log.h' \
        'daemon/seam/x.c jansson.h' 'client/x.c core/core.h' 'client/x.c ../daemon/seam/io.h' 'client/ctl/tape/x.c shell/log.h' 'kernels/x.c base/err.h' \
        'daemon/core/tree/x.c core/tier/host.h' 'daemon/base/x.c pthread.h' 'proto/x.c sys/socket.h' 'daemon/core/x.c liburing.h' \
        'daemon/seam/xfer/tcp/x.c seam/xfer/verbs/verbs.h' 'daemon/seam/xfer/verbs/x.c ../tcp/tcp.h' \
        'daemon/seam/xfer/x.c seam/mem/checksum.h' 'daemon/reshard/x.c core/core.h' 'daemon/reshard/x.c seam/mem/checksum.h' \
        'daemon/reshard/x.c kernels/other.h' 'daemon/reshard/x.c stdlib.h' 'kernels/x.c reshard/plan.h'; do
        echo "#include \"${bad#* }\"" >"$copy/${bad% *}"
        if [[ $(check_tree "$copy" | grep -c '^forbidden') -ne 1 ]]; then
            echo "self-test: not found: $bad" >&2
            return 1
        fi
        rm "$copy/${bad% *}"
    done
    printf '#include "base/err.h"\n#include <string.h>\n' >"$copy/daemon/core/x.c"
    printf '#include "core/core.h"\n#include "io.h"\n' >"$copy/daemon/seam/x.c"
    if check_tree "$copy" | grep '^forbidden'; then
        echo "self-test: an allowed edge was refused" >&2
        return 1
    fi
}

self_test
result=$(check_tree "$source_dir")
echo "$result"
if grep -q '^forbidden' <<<"$result"; then
    exit 1
fi
[[ ${result##* } -ge 50 ]] || { echo "only ${result##* } edges: were the sources found?" >&2; exit 1; }

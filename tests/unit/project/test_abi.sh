#!/usr/bin/env bash
# The public headers match abi.txt, and the version script and the library have the same calls.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=${TERN_SOURCE:-$(cd "$here/../../.." && pwd)}
library=${TERN_BUILD:-$root/build}/client/libtern.so
[[ -f $library ]] || {
    echo "skipped: no shared library in this build"
    exit 77
}
python3 "$here/check_abi.py" "$root" "$here/abi.txt" "$library"

# The check detects an added field, a changed number, and a call that is not exported.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
planted() { # FILE SED-EXPRESSION
    rm -rf "${copy:?}"/*
    (cd "$root" && cp --parents daemon/base/tern_err.h client/libtern/include/tern*.h client/libtern/libtern.map "$copy")
    sed -i "$2" "$copy/$1"
    cmp -s "$root/$1" "$copy/$1" && echo "self-test: nothing was planted in $1" && exit 1
    if python3 "$here/check_abi.py" "$copy" "$here/abi.txt" "$library" >"$copy/out"; then
        echo "self-test: not seen: $2"
        exit 1
    fi
}
planted client/libtern/include/tern_session.h 's/uint32_t committed, written, allocated;/uint32_t committed, written, allocated, more;/'
planted daemon/base/tern_err.h 's/X(GONE, 9,/X(GONE, 19,/'
planted client/libtern/libtern.map '/tern_ping;/d'

# Each call that a thread or a forked child must not make begins with ENTER (client/libtern/use.c),
# or returns such a call.
unguarded() { # FILE...: calls without it
    awk '
        /^enum tern_err tern_[a-z_]*\(/ { name = $3; sub(/\(.*/, "", name); body = "" }
        name { body = body $0 }
        name && /^}/ {
            if (body !~ /ENTER\(|[^_]is_owner\(/ && body !~ /\{ +return tern_[a-z_]*\(/ && name !~ /^tern_(connect|blocks_open|block_queue_open|section_(read|write))$/)
                print FILENAME ": " name " has no ENTER"
            name = ""
        }' "$@"
}
bad=$(unguarded "$root"/client/libtern/*.c)
[[ -z $bad ]] || { echo "$bad"; exit 1; }
sed '/ENTER(t);/d' "$root/client/libtern/tern.c" >"$copy/tern.c"
[[ $(unguarded "$copy/tern.c" | wc -l) == 4 ]] || { echo "self-test: calls without ENTER are not seen"; exit 1; }

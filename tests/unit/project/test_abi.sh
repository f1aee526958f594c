#!/usr/bin/env bash
# The public headers are what abi.txt says, and the version script and the library have the same calls.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=${TERN_SOURCE:-$(cd "$here/../../.." && pwd)}
library=${TERN_BUILD:-$root/build}/client/libtern.so
[[ -f $library ]] || {
    echo "skipped: no shared library in this build"
    exit 77
}
python3 "$here/check_abi.py" "$root" "$here/abi.txt" "$library"

# It sees a field that was added, a number that has moved, and a call that is not exported.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
planted() { # FILE SED-EXPRESSION
    rm -rf "${copy:?}"/*
    (cd "$root" && cp --parents daemon/base/tern_err.h client/include/tern*.h client/libtern.map "$copy")
    sed -i "$2" "$copy/$1"
    cmp -s "$root/$1" "$copy/$1" && echo "self-test: nothing was planted in $1" && exit 1
    if python3 "$here/check_abi.py" "$copy" "$here/abi.txt" "$library" >"$copy/out"; then
        echo "self-test: not seen: $2"
        exit 1
    fi
}
planted client/include/tern_session.h 's/uint32_t committed, written, allocated;/uint32_t committed, written, allocated, more;/'
planted daemon/base/tern_err.h 's/X(GONE, 9,/X(GONE, 19,/'
planted client/libtern.map '/tern_ping;/d'

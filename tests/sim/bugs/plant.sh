#!/usr/bin/env bash
# plant.sh SOURCE OUT: copies the sources of daemon/core, daemon/seam and daemon/reshard below OUT and applies every patch
# of this folder to the copy, in the order of their numbers. A file with unchanged text keeps its time, so that
# it is not compiled again.
set -euo pipefail
source=${1:?the root of the sources} out=${2:?where the copy goes}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

(cd "$source" && find daemon/core daemon/seam daemon/reshard -name '*.c' -exec cp --parents -t "$work" {} +)
numbers=
while read -r patch; do
    name=${patch##*/}
    numbers="$numbers $((10#${name%%-*}))"
    if ! said=$(patch -d "$work" -p1 -F0 -s --no-backup-if-mismatch <"$patch" 2>&1); then
        echo "the planted bug $name no longer applies to the sources; run mend.sh beside it, or say in it by hand where the bug belongs now:"
        echo "$said"
        exit 1
    fi
done < <(printf '%s\n' "$here"/[0-9]*-*.patch | sort -V)
table=$(sed -n 's/^ *X(\([0-9]*\),.*/\1/p' "$here/bugs.h" | tr '\n' ' ')
if [[ ${numbers# } != "${table% }" ]]; then
    echo "bugs.h lists the planted bugs $table, but there are patches for $numbers"
    exit 1
fi
(cd "$work" && find . -name '*.c') | while read -r file; do
    cmp -s "$work/$file" "$out/$file" || install -D -m 644 "$work/$file" "$out/$file"
done

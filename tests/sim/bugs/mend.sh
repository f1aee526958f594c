#!/usr/bin/env bash
# mend.sh: writes every patch of this folder anew against the sources as they are, after a change moved the
# lines around it. Where a patch does not fit any more even with its context ignored, it stops and shows what is
# left over: say by hand in that patch where the bug belongs now, and run this again.
set -euo pipefail
cd "$(dirname "$0")/../../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$work/a"
find daemon/core daemon/seam daemon/reshard -name '*.c' -exec cp --parents -t "$work/a" {} +
for patch in $(printf '%s\n' tests/sim/bugs/[0-9]*-*.patch | sort -V); do
    rm -rf "$work/b"
    cp -r "$work/a" "$work/b"
    if ! patch -d "$work/b" -p1 -F2 -s --no-backup-if-mismatch <"$patch"; then
        echo "$patch has to be mended by hand:"
        find "$work/b" -name '*.rej' -exec cat {} +
        exit 1
    fi
    {
        head -1 "$patch"
        (cd "$work" && diff -rU1 a b || true) | grep -v '^diff -r' | sed -E 's/^((---|\+\+\+) [^\t]*)\t.*/\1/'
    } >"$work/new"
    cmp -s "$work/new" "$patch" || {
        echo "mended: $patch"
        cp "$work/new" "$patch"
    }
    rm -rf "$work/a"
    mv "$work/b" "$work/a"
done

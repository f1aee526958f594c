#!/usr/bin/env bash
# mend.sh: rewrites every patch of this folder against the present sources, after a change moved the lines around
# it. If a patch no longer applies even with its context ignored, mend.sh stops and shows the rejected hunks: edit
# that patch by hand to the bug's new place, and run mend.sh again.
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

#!/usr/bin/env bash
# A state changes in the move function of its machine and nowhere else: fails on an assignment to a field `state` or
# `phase` outside a function whose name ends in `_move`. Where a view reports a state to others, `ret` is filled.
set -euo pipefail
source_dir=$(realpath "${TERN_SOURCE:-$(dirname "$0")/../../..}")
folders="daemon/shell daemon/seam client"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

assignments() { # FOLDER...
    find "$@" -name '*.[ch]' -print0 | xargs -0 awk '
        /^[a-z].*\(/ { name = $0; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name) }
        /(->|\.)(state|phase) = / && !/ret->state = / && !/^[[:space:]]*(\/\*|\*|\.)/ && name !~ /_move$/ {
            print FILENAME ":" FNR ": " name ": " $0
        }'
}

printf 'void x_move(struct x *x)\n{\n    x->state = 1;\n}\n\nvoid y(struct x *x)\n{\n    x->state = 2;\n}\n' >"$work/x.c"
[[ $(assignments "$work" | wc -l) -eq 1 ]] || { echo "self-test: one assignment should be found: $(assignments "$work")"; exit 1; }

cd "$source_dir"
# shellcheck disable=SC2086
found=$(assignments $folders)
if [[ -n $found ]]; then
    printf 'a state is assigned outside its move function:\n%s\n' "$found"
    exit 1
fi
echo "no state is assigned outside its move function in: $folders"

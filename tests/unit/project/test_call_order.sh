#!/usr/bin/env bash
# The order inside a layer: finds in the built objects which file calls which, and fails on a call from a sub-folder
# to a later one, and on a circle of files. A table row: library | folder | sub-folders, lowest first; `.` stands for
# the files of the folder itself, and a file belongs to the innermost sub-folder that has it. The last column: files,
# and folders with a `/`, that still have circles.
set -euo pipefail
build=${TERN_BUILD:?the build folder}
source_dir=$(realpath "${TERN_SOURCE:-$(dirname "$0")/../../..}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

read -r -d '' table <<'TABLE' || true
daemon/core/libtern_core.a | daemon/core | arena memory tree tier disk transfer session fetch turn . | tree/evict tree/nodes tree/state
daemon/seam/libtern_seam.a | daemon/seam | io mem disk xfer/nics xfer/flow xfer/conn xfer/tcp xfer/local xfer/verbs/device xfer/verbs/path xfer/verbs/move xfer/verbs xfer
daemon/shell/libtern_shell.a | daemon/shell | log tape tls stream step config wire conn peers alarm admin loop
TABLE

# Each call from file to file, as `CALLER CALLED SYMBOL`, with the folder in front of the name.
calls() { # ARCHIVE FOLDER
    (cd "$2" && find . -name '*.c') >"$work/files"
    nm -Ag "$1" 2>/dev/null | awk -v files="$work/files" '
        BEGIN {
            while ((getline path < files) > 0) {
                sub(/^\.\//, "", path)
                name = path
                sub(/.*\//, "", name)
                if (!index(path, "/")) path = "./" path
                sub(/\.c$/, "", path)
                where[name] = path
            }
        }
        {
            split($1, part, ":")
            object = part[2]
            sub(/\.o$/, "", object)
            file = where[object]
            if (file == "") { print "unknown object " object > "/dev/stderr"; exit 1 }
            kind = $(NF - 1)
            sub(/.*:/, "", kind)
            if (kind == "U") needs[file " " $NF] = 1
            else from[$NF] = file
        }
        END {
            for (pair in needs) {
                split(pair, word, " ")
                if (word[2] in from && from[word[2]] != word[1]) print word[1], from[word[2]], word[2]
            }
        }' | sort
}

# Calls that go up, and folders that the order does not name.
against() { # CALLS SUB-FOLDER...
    local list=$1
    shift
    awk -v order="$*" '
        BEGIN { n = split(order, folder, " "); for (i = 1; i <= n; i++) rank[folder[i]] = i }
        function rank_of(file) {
            while (sub(/\/[^\/]*$/, "", file)) if (file in rank) return rank[file]
            return 0
        }
        {
            caller = rank_of($1); called = rank_of($2)
            if (!caller || !called) print "not in the order: " $0
            else if (caller < called) print "goes up: " $0
        }' "$list"
}

circles() { # CALLS FILE...: the files of each circle, except circles among the files named
    local list=$1
    shift
    awk -v known="$*" '
        BEGIN { n = split(known, file, " "); for (i = 1; i <= n; i++) may[file[i]] = 1 }
        function known_one(file) {
            do if (file in may) return 1; while (sub(/[^\/]+\/?$/, "", file) && file != "")
            return 0
        }
        !(known_one($1) && known_one($2)) { print $1, $2 }' "$list" | sort -u | tsort 2>&1 >/dev/null | sed 's/^tsort: //' || true
}

# The check must be able to fail: it has to find each call that it should refuse.
printf '%s\n' 'low/a low/b f' 'high/c low/a g' 'high/c high/in/d k' >"$work/good"
printf '%s\n' 'low/a high/c h' 'new/d low/a i' 'low/b low/a j' 'high/in/deep/e high/c l' >"$work/bad"
[[ -z $(against "$work/good" low high/in high)$(circles "$work/good") ]] || { echo "self-test: a good order was refused"; exit 1; }
cat "$work/good" >>"$work/bad"
[[ $(against "$work/bad" low high/in high | wc -l) -eq 3 ]] || { echo "self-test: a call that goes up was not found"; exit 1; }
[[ -z $(circles "$work/bad" low/ high/) ]] || { echo "self-test: a circle that is known was refused"; exit 1; }
circles "$work/bad" high/ | grep -q 'low/b' || { echo "self-test: a circle was not found"; exit 1; }

status=0
while IFS='|' read -r archive folder order known; do
    archive=$build/${archive// /} folder=${folder// /}
    [[ -f $archive ]] || { echo "$folder: is not in this build"; continue; }
    calls "$archive" "$source_dir/$folder" >"$work/calls"
    [[ $(wc -l <"$work/calls") -ge 20 ]] || { echo "$folder: only $(wc -l <"$work/calls") calls: was the library found?"; exit 1; }
    # shellcheck disable=SC2086
    bad=$(against "$work/calls" $order; circles "$work/calls" $known)
    if [[ -n $bad ]]; then
        printf '%s:\n%s\n' "$folder" "$bad"
        status=1
    else
        echo "$folder: $(wc -l <"$work/calls") calls, all down the order, no circle of files"
    fi
done <<<"$table"
exit $status

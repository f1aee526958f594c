# Shared by the replay scripts: run tern-replay, keep its JSON, and look into it. Sourced, never run.
source "$(dirname "${BASH_SOURCE[0]}")/with_ternd.sh"

# field NAME: the number at that key; fails if it is not there.
field() {
    local v
    v=$(grep -oE "\"$1\":[0-9.]+" "$DIR/json") || fail "no \"$1\" in the report"
    echo "${v#*:}"
}

# is NAME WANT [NAME WANT ...]
is() {
    while [ $# -gt 0 ]; do
        [ "$(field "$1")" = "$2" ] || fail "$1 is $(field "$1"), not $2"
        shift 2
    done
}

# replay ARGS...: the same of two daemons that are started for it.
replay() { played --spawn "$@"; }

# played ARGS...: exits 0, and what must hold in every run holds, whatever the load.
played() {
    echo "tern-replay $*"
    "$TERN_BIN/tern-replay" "$@" --json >"$DIR/json" 2>"$DIR/err" || fail "exit status $?: tern-replay $*"
    is wrong_bytes 0 failed_requests 0 leaked_pages 0
    [ "$(field prompt_pages)" -eq $(($(field decode_hit_pages) + $(field transferred_pages))) ] ||
        fail "prompt pages are not hits and transferred pages together"
    is verified_pages "$(field prompt_pages)"
}

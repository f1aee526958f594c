# Shared by the replay scripts: runs tern-replay, keeps its JSON, reads figures. Sourced, never run.
source "$(dirname "${BASH_SOURCE[0]}")/with_ternd.sh"

# field NAME: the number at that key; fails if the key is missing.
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

# replay ARGS...: as played, with two daemons started for it.
replay() { played --spawn "$@"; }

# played ARGS...: exits with 0, and what must hold in every run holds, whatever the load.
played() {
    echo "tern-replay $*"
    "$TERN_BIN/tern-replay" "$@" --json >"$DIR/json" 2>"$DIR/err" || fail "exit status $?: tern-replay $*"
    is wrong_bytes 0 failed_requests 0 leaked_pages 0
    [ "$(field prompt_pages)" -eq $(($(field decode_hit_pages) + $(field transferred_pages))) ] ||
        fail "prompt pages are not hits and transferred pages together"
    is verified_pages "$(field prompt_pages)"
}

# own_peer NAME TENANT_MORE LINE [PEER_MORE]: starts a daemon called own that is its own peer,
# linked with itself, with a tenant t, a line of configuration and more of its entry in `peers`;
# SIDES: options for tern-replay over it.
own_peer() {
    local port
    free_ports port
    cat >"$DIR/$1.yaml" <<YAML
node: own
listen: 127.0.0.1:$port
page_bytes_min: 512
admin: {socket: $DIR/$1.admin}
tenants:
  - {name: t, socket: $DIR/$1.sock, memory: 64M$2}
peers:
  - {name: own, address: "127.0.0.1:$port", tenants: [t]${4:-}}
$3
YAML
    "$TERND" --config "$DIR/$1.yaml" >"$DIR/$1.out" 2>&1 &
    PIDS[$1]=$!
    ready "${PIDS[$1]}" "$DIR/$1.out"
    wait_for "the link to itself" own_linked "$1"
    SIDES=(--prefill "$DIR/$1.sock,$DIR/$1.admin" --decode "$DIR/$1.sock,$DIR/$1.admin" --peer own)
}
own_asked() { "$CTL" --socket "$DIR/$1.admin" "${@:2}"; }
own_linked() {
    own_asked "$1" peers --json | python3 -c 'import json, sys; p, = json.load(sys.stdin)["peers"]; sys.exit((p["state"], p["transport"]) != ("up", "local"))'
}
own_ends() {
    kill "${PIDS[$1]}"
    wait "${PIDS[$1]}" || fail "the daemon ended with $?"
    unset "PIDS[$1]"
}

#!/usr/bin/env bash
# A core dump of ternd has nothing that depends on the secret of the core's hash tables (T20): the kernel is told so for
# memory of its own that is as large as those tables, and grows with them.
source "$(dirname "$0")/with_ternd.sh"

# hidden NODES: sets HIDDEN, the bytes of private memory that are in no dump
hidden() {
    cat >"$DIR/config.yaml" <<YAML
node: e2e
workers: 1
page_bytes_min: 64K
limits: {nodes: $1}
admin: {socket: $DIR/admin.sock}
tenants:
  - {name: t0, socket: $DIR/t0.sock, memory: 8M}
YAML
    : >"$DIR/log"
    "$TERN_BIN/ternd" --config "$DIR/config.yaml" 2>"$DIR/log" &
    TERND_PID=$!
    ready "$TERND_PID" "$DIR/log"
    HIDDEN=$(awk '$1 ~ /^[0-9a-f]+-[0-9a-f]+$/ { private = $2 == "rw-p" && $5 == 0 }
        private && $1 == "Size:" { kib = $2 }
        private && $1 == "VmFlags:" && / dd( |$)/ { n += kib }
        END { print n * 1024 }' "/proc/$TERND_PID/smaps")
    ternd_stop
}

hidden 1000
least=$HIDDEN
hidden 1000000
echo "$((least >> 10)) KiB hidden with 1,000 nodes, $((HIDDEN >> 10)) KiB with 1,000,000"
# 16 bytes of a node, and 4 of each bucket, of which there are 1024 and 2^20.
more=$((999000 * 16 + ((1 << 20) - 1024) * 4))
[[ $((HIDDEN - least)) -ge $((more - 8192)) ]] || fail "$((HIDDEN - least)) bytes more are hidden, not $more"

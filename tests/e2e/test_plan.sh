#!/usr/bin/env bash
# `ternd --plan`: --check-config prints the same, and the start keeps to its memory and descriptors (test_memory.sh);
# locked memory and rails follow from the configuration; and it plans for a larger machine, too.
source "$(dirname "$0")/with_ternd.sh"
flags=(--admin.socket "$DIR/admin.sock" --insecure_peers=yes)
small=(--tenant "name=chat,socket=$DIR/chat.sock,memory=32M,regions=2" --tenant "name=code,socket=$DIR/code.sock,memory=16M,host_memory=16M")
plan() { "$TERN_BIN/ternd" --plan "${flags[@]}" "$@" >"$DIR/plan" || fail "--plan $*"; }
says() { # KEY
    sed -n "s/^ *$1  *\([0-9a-z]*\).*/\1/p" "$DIR/plan"
}
wants() { [[ $(says "$1") == "$2" ]] || fail "$1 is $(says "$1"), not $2: $(cat "$DIR/plan")"; }

plan "${small[@]}"
"$TERN_BIN/ternd" --check-config "${flags[@]}" "${small[@]}" >"$DIR/checked"
sed -n '/^# memory_bytes/,$s/^# //p' "$DIR/checked" | diff - "$DIR/plan" || fail "--check-config says otherwise"
wants memory_bytes $(($(sed -n 's/^  [a-z_]*  *\([0-9]*\)$/\1+/p' "$DIR/plan" | tr -d '\n') 0))
wants pages $((80 << 20))
wants host_pages $((16 << 20))
wants pinned_bytes 0
wants rails none

peer=name=b,address=127.0.0.1:1,tenants=chat
plan "${small[@]}" --peer "$peer,transport=verbs"
wants pinned_bytes $(((80 << 20) + 8192))
wants rails 1
plan "${small[@]}" --peer "$peer,transport=auto" --rdma_device mlx5_0+mlx5_1
wants pinned_bytes $(((160 << 20) + 8192))
wants rails 2
grep -q '^rails .* mlx5_0 mlx5_1$' "$DIR/plan" || fail "the rails have no names: $(cat "$DIR/plan")"

large=(--tenant "name=chat,socket=$DIR/chat.sock,memory=64T" --page_bytes_min 64K)
plan "${large[@]}"
wants pages $((64 << 40))
grep -q '^machine_bytes .*too little$' "$DIR/plan" || fail "a machine that is too small: $(cat "$DIR/plan")"
ends 2 "this machine has" "$TERN_BIN/ternd" --check-config "${flags[@]}" "${large[@]}"
ends 2 "no tenant" "$TERN_BIN/ternd" --plan
echo "plan: ok"

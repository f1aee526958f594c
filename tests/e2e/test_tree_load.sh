#!/usr/bin/env bash
# `ternctl tree` while the tree changes: the list comes in pages, and yet each row's parent is in
# the result, of the right generation and at a smaller depth; so are the edges of the drawing.
source "$(dirname "$0")/with_ternd.sh"
[[ -x $TERN_BIN/tern-replay ]] || skip "tern-replay is not in this build"
needs python3 "to check the JSON"

free_ports PREFILL_PORT DECODE_PORT
ternd_run prefill --page_bytes_min 512 --tenant "name=default,socket=$DIR/prefill/default.sock,memory=16M" \
    --listen "127.0.0.1:$PREFILL_PORT" --insecure_peers --peer "name=decode,address=127.0.0.1:$DECODE_PORT,tenants=default"
ternd_run decode --page_bytes_min 512 --tenant "name=default,socket=$DIR/decode/default.sock,memory=16M" \
    --listen "127.0.0.1:$DECODE_PORT" --insecure_peers --peer "name=prefill,address=127.0.0.1:$PREFILL_PORT,tenants=default"
# More sessions than the pool has room for, until this script ends: nodes come and go, and their slots are reused.
"$TERN_BIN/tern-replay" --prefill "$DIR/prefill/default.sock" --decode "$DIR/decode/default.sock" --profile tiny --page-bytes 512 \
    --sessions 20000 --turns 6 --concurrency 8 --pool-pages 2500 --seed 1 --json >"$DIR/json" 2>"$DIR/err" &
PIDS[replay]=$!
full() {
    (($("$CTL" --socket "$DIR/prefill/admin.sock" status --json | value "j['prefix_nodes']") >= 1200))
}
wait_for "a tree of several pages" full

cat >"$DIR/look.py" <<'PY'
import json, subprocess, sys

ctl, looks, rows_min = sys.argv[1:3], 3, 1200 # a page of the list has 1,024 rows

def look():
    tree = json.loads(subprocess.run(ctl + ["tree", "--json"], check=True, capture_output=True).stdout)
    rows = {n["id"]: n for n in tree["tree"]}
    assert len(rows) == len(tree["tree"]), "an id stands twice"
    assert len({n["slot"] for n in tree["tree"]}) == len(rows), "two nodes of one slot"
    for n in rows.values():
        assert int(n["id"], 16) & 0xffffffff == n["slot"], n
        if n["parent"] is None:
            assert n["parent_id"] is None and n["depth"] == 0, n
            continue
        parent = rows.get(n["parent_id"])
        assert parent, f"{n['id']}: its parent {n['parent_id']} is not in the picture"
        assert parent["slot"] == n["parent"] and parent["depth"] < n["depth"], (n, parent)
    return len(rows), tree["left_out"], frozenset(rows)

# Only samples that differ count: an unchanged tree tests nothing.
seen, changed, left_out, before = 0, 0, 0, None
while changed < looks:
    n, left, ids = look()
    seen += 1
    assert seen < 1000, f"in {seen} looks the tree had {rows_min} nodes and was another one only {changed} times"
    if n >= rows_min:
        changed += before is not None and before != ids
        left_out += left
        before = ids
print(f"{seen} looks, the last at {len(before)} nodes; {left_out} nodes that went were left out")
PY
python3 "$DIR/look.py" "$CTL" "--socket=$DIR/prefill/admin.sock" || fail "the picture of the tree"
kill -0 "${PIDS[replay]}" 2>/dev/null || fail "the replay ended before: $(cat "$DIR/json" "$DIR/err")"
"$CTL" --socket "$DIR/prefill/admin.sock" tree >/dev/null || fail "the table of the tree"
"$CTL" --socket "$DIR/prefill/admin.sock" tree --svg "$DIR/tree.svg" >/dev/null || fail "the drawing of the tree"
echo "tree under load: ok"

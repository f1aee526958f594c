#!/usr/bin/env bash
# The Python package in a user's way: installed by pip from a checkout, against the built library
# and two real daemons; its own tests, its README, its examples and its types.
source "$(dirname "$0")/with_ternd.sh"
PYTHON=$TERN_SOURCE/.venv/bin/python
[[ -x $PYTHON ]] || skip "there is no $TERN_SOURCE/.venv (deploy/setup.sh makes it)"
export TERN_LIBRARY=$TERN_BUILD/client/libtern.so TERN_BIN TERN_SOURCE PYTHONDONTWRITEBYTECODE=1 MYPY_CACHE_DIR=$DIR/mypy
[[ -f $TERN_LIBRARY ]] || skip "no shared library in this build"

cp -r "$TERN_SOURCE/client/python" "$DIR/python"
"$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --target "$DIR/site" \
    "$DIR/python" || fail "pip install ./client/python"
[[ -f $DIR/site/tern/py.typed ]] || fail "the package is not typed"
cd "$DIR/python/tests"
# With the stand-in in place of CUDA's driver: a tenant without memory on a GPU does not load it.
PYTHONPATH=$DIR/site LD_LIBRARY_PATH=$TERN_BUILD/tests/standin_memory "$PYTHON" -m pytest -q -p no:cacheprovider . || fail "the tests of client/python"

# The tests with the real engines and Dynamo run elsewhere (tests/vllm, tests/engines,
# tests/dynamo); here only types are checked.
for folder in vllm dynamo engines; do
    (cd "$TERN_SOURCE/tests/$folder" && MYPYPATH=$DIR/python/tests/stubs:$DIR/python/tests:$DIR/python "$PYTHON" -m mypy --strict .) ||
        fail "the types of tests/$folder"
done

# The benchmark of the session server works in its short form, and has types.
(cd "$TERN_SOURCE/tests/bench" && MYPYPATH=$DIR/python/tests/stubs:$DIR/python/tests:$DIR/python:$DIR/python/examples "$PYTHON" -m mypy --strict session_turns.py blocks_beside.py) ||
    fail "the types of tests/bench"
for what in "kept --sessions 2 --turns 3" "health --chats 4 --rounds 1"; do
    # shellcheck disable=SC2086
    PYTHONPATH=$DIR/site "$PYTHON" "$TERN_SOURCE/tests/bench/session_turns.py" $what >"$DIR/figures" || fail "session_turns.py $what"
    [[ $(grep -c '"store"' "$DIR/figures") -eq 3 ]] || fail "session_turns.py $what has not three rows: $(cat "$DIR/figures")"
done

# blocks_beside.py measures the stores that are installed, and names the others.
"$PYTHON" "$TERN_SOURCE/tests/bench/blocks_beside.py" --quick --sizes 65536 >"$DIR/figures" || fail "blocks_beside.py"
"$PYTHON" - "$DIR/figures" <<'PYTHON' || fail "blocks_beside.py has not a row for each list and store: $(cat "$DIR/figures")"
import json, sys
told = json.load(open(sys.argv[1]))
there = {(row["store"], row["list"]) for row in told["rows"] if row["put_us"] > 0 and not row["wrong"]}
stores = {"tern", "redis", "tmpfs", "mooncake", "lmcache"}
assert there == {(name, n) for name in stores - set(told["missing"]) for n in (1, 32)} >= {("tern", 1), ("tmpfs", 1)}
assert all(told["missing"].values())
PYTHON

# Without the library the error names what is missing.
if ERR=$(cd "$DIR" && TERN_LIBRARY=$DIR/none.so PYTHONPATH=$DIR/site "$PYTHON" -c "import tern" 2>&1); then
    fail "no library, and it was content"
fi
grep -q "install Tern, or set TERN_LIBRARY to the path of a built library" <<<"$ERR" || fail "no advice: $ERR"
echo "python: ok"

#!/usr/bin/env bash
# A model that really computes, over two daemons: tokens and logits are bit by bit those of the model alone, whatever
# is aborted, retracted, fetched or shared, in pools that are too small; and a wrong byte in a page is detected.
source "$(dirname "$0")/with_ternd.sh"
PYTHON=$TERN_SOURCE/.venv/bin/python
[[ -x $PYTHON ]] || skip "there is no $TERN_SOURCE/.venv (deploy/setup.sh makes it)"
export TERN_LIBRARY=$TERN_BUILD/client/libtern.so TERN_BIN PYTHONPATH=$TERN_SOURCE/client/python PYTHONDONTWRITEBYTECODE=1
export OPENBLAS_NUM_THREADS=1 # the matrices are tiny
[[ -f $TERN_LIBRARY ]] || skip "no shared library in this build"

(cd "$TERN_SOURCE/tests/engine_lm" && MYPYPATH=$TERN_SOURCE/client/python/tests "$PYTHON" -m mypy --strict --cache-dir=/dev/null .) ||
    fail "types"
requests=120 eager=50 tickets=60 flips=150
[[ -n ${TERN_FULL:-} ]] && requests=5000 eager=5000 tickets=5000 flips=1000
run() {
    "$PYTHON" "$TERN_SOURCE/tests/engine_lm/run.py" "$@" >"$DIR/json" 2>"$DIR/err" || {
        cat "$DIR/err" "$DIR/json" >&2
        fail "run.py $*"
    }
    echo "run.py $*: $(tr -d ' \n' <"$DIR/json")"
}
seed=$((RANDOM + 1))
run --requests $requests --seed $seed
run --requests $eager --seed $seed --supersede eager
run --requests $tickets --seed $seed --tickets
run --requests $tickets --seed $seed --follow
run --requests 60 --seed $seed --flips $flips
run --requests 50 --seed $seed --roomy
echo "engine_lm: ok"

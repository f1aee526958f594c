#!/usr/bin/env bash
# A model that really computes, over a daemon with a disk tier that is ended and killed in turn:
# tokens and logits are those of the model alone, and the next daemon finds every acknowledged store
# and everything that an ended daemon held. Then files are damaged between two starts: less may be
# found, and all of it is right. TERN_FULL=1: 2,000 requests.
source "$(dirname "$0")/with_ternd.sh"
PYTHON=$TERN_SOURCE/.venv/bin/python
[[ -x $PYTHON ]] || skip "there is no $TERN_SOURCE/.venv (deploy/setup.sh makes it)"
export TERN_LIBRARY=$TERN_BUILD/client/libtern.so TERN_BIN PYTHONPATH=$TERN_SOURCE/client/python PYTHONDONTWRITEBYTECODE=1
export OPENBLAS_NUM_THREADS=1 # the matrices are tiny
[[ -f $TERN_LIBRARY ]] || skip "no shared library in this build"

requests=120 every=24
[[ -n ${TERN_FULL:-} ]] && requests=2000 every=200
run() {
    "$PYTHON" "$TERN_SOURCE/tests/engine_lm/spill.py" "$@" >"$DIR/out" 2>"$DIR/err" || {
        cat "$DIR/err" "$DIR/out" >&2
        fail "spill.py $*"
    }
    echo "spill.py $*"
    cat "$DIR/out"
}
run --requests $requests --every $every --seed $((RANDOM + 1))
if grep -q libcrypto <<<"$LIBRARIES"; then
    run --requests 40 --every 10 --encrypted --seed $((RANDOM + 1))
fi
echo "engine_spill: ok"

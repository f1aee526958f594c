#!/usr/bin/env bash
# More tiers never keep less (D6): the beginning of real traces through one daemon with a disk, with device and host
# tiers of several sizes. Each finds exactly what a cache without limits finds, and the next daemon finds everything
# that memory had at the end. Needs the traces: exit 77 without them.
source "$(dirname "$0")/with_ternd.sh"
PYTHON=$TERN_SOURCE/.venv/bin/python
[[ -x $PYTHON ]] || skip "there is no $TERN_SOURCE/.venv (deploy/setup.sh makes it)"
export TERN_LIBRARY=$TERN_BUILD/client/libtern.so TERN_BIN PYTHONPATH=$TERN_SOURCE/client/python PYTHONDONTWRITEBYTECODE=1
[[ -f $TERN_LIBRARY ]] || skip "no shared library in this build"
traces=${TERN_TRACES:-}
[[ -n $traces ]] || skip "TERN_TRACES names no folder of traces"
for f in conversation agentic; do
    [[ -r $traces/$f.jsonl ]] || skip "no $traces/$f.jsonl: TERN_TRACES names the folder of traces"
done

requests=16
[[ -n ${TERN_FULL:-} ]] && requests=200
"$PYTHON" "$TERN_SOURCE/tests/engine_lm/tiers.py" "$traces/conversation.jsonl" $requests 2200 || fail "conversation"
"$PYTHON" "$TERN_SOURCE/tests/engine_lm/tiers.py" "$traces/agentic.jsonl" $requests 2200 || fail "agentic"
echo "tiers_keep: ok"

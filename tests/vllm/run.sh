#!/usr/bin/env bash
# Stock vLLM over Tern. Needs the virtual environment that deploy/venv.sh makes, or that TERN_VLLM names.
# Runs by label (vllm) with `tests/run.sh --full`, and by hand: bash tests/vllm/run.sh [ARGUMENTS OF PYTEST]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export TERN_SOURCE=${TERN_SOURCE:-$(cd "$here/../.." && pwd)}
export TERN_BIN=${TERN_BIN:-$TERN_SOURCE/build/bin}
export TERN_LIBRARY=${TERN_BUILD:-$TERN_SOURCE/build}/client/libtern.so PYTHONDONTWRITEBYTECODE=1
export VLLM_PYTHON=${TERN_VLLM:-$TERN_SOURCE/.venv-vllm}/bin/python
[[ -x $VLLM_PYTHON ]] || { echo "skipped: there is no $VLLM_PYTHON (deploy/venv.sh makes it)"; exit 77; }
[[ -f $TERN_LIBRARY ]] || { echo "skipped: no shared library in this build"; exit 77; }
cd "$here"
PYTHONPATH=$TERN_SOURCE/client/python${PYTHONPATH:+:$PYTHONPATH} exec "$VLLM_PYTHON" -m pytest -q -p no:cacheprovider "${@:-.}"

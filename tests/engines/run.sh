#!/usr/bin/env bash
# SGLang's, vLLM's and LMCache's own classes over the adapters of blocks. Needs the virtual environment
# that deploy/venv.sh makes, or that TERN_VLLM names. Runs by label (vllm) with `tests/run.sh --full`, and
# by hand: bash tests/engines/run.sh [ARGUMENTS OF PYTEST]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export TERN_SOURCE=${TERN_SOURCE:-$(cd "$here/../.." && pwd)}
export TERN_BIN=${TERN_BIN:-$TERN_SOURCE/build/bin}
export TERN_LIBRARY=${TERN_BUILD:-$TERN_SOURCE/build}/client/libtern.so PYTHONDONTWRITEBYTECODE=1
python=${TERN_VLLM:-$TERN_SOURCE/.venv-vllm}/bin/python
[[ -x $python ]] || { echo "skipped: there is no $python (deploy/venv.sh makes it)"; exit 77; }
[[ -f $TERN_LIBRARY ]] || { echo "skipped: no shared library in this build"; exit 77; }
cd "$here"
PYTHONPATH=$TERN_SOURCE/client/python${PYTHONPATH:+:$PYTHONPATH} exec "$python" -m pytest -q -p no:cacheprovider -W ignore "${@:-.}"

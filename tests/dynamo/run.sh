#!/usr/bin/env bash
# Dynamo's indexer, fed by the bridge of KV events. Needs the virtual environment that `deploy/venv.sh dynamo`
# makes, or that TERN_DYNAMO names. Runs by label (dynamo) with `tests/run.sh --full`, and by hand:
# bash tests/dynamo/run.sh [ARGUMENTS OF PYTEST]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export TERN_SOURCE=${TERN_SOURCE:-$(cd "$here/../.." && pwd)}
build=${TERN_BUILD:-$TERN_SOURCE/build}
export TERN_BIN=${TERN_BIN:-$build/bin} TERN_LIBRARY=$build/client/libtern.so PYTHONDONTWRITEBYTECODE=1
python=${TERN_DYNAMO:-$TERN_SOURCE/.venv-dynamo}/bin/python
[[ -x $python ]] || { echo "skipped: there is no $python (deploy/venv.sh dynamo makes it)"; exit 77; }
[[ -f $TERN_LIBRARY ]] || { echo "skipped: no shared library in this build"; exit 77; }
cd "$here"
# The stand-in for CUDA's driver gives the daemon the memory of a GPU.
export LD_LIBRARY_PATH=$build/tests/standin_memory PYTHONPATH=$TERN_SOURCE/client/python:$TERN_SOURCE/client/python/tests
exec "$python" -m pytest -q -p no:cacheprovider "${@:-.}"

#!/usr/bin/env bash
# Makes a virtual environment with the packages that the long forms of tests need beside Tern, from a requirements file here.
# Only `tests/run.sh --full` and you call it. If everything is installed it does nothing and needs no network.
#   vllm     .venv-vllm: SGLang, LMCache, and stock vLLM for a machine without a GPU. 6.6 GB. TERN_VLLM names another folder
#   dynamo   .venv-dynamo: Dynamo's indexer of KV events. 0.4 GB. TERN_DYNAMO names another folder
set -euo pipefail
cd "$(dirname "$0")"

name=${1:-}
case $name in
vllm) venv=${TERN_VLLM:-$PWD/../.venv-vllm} ;;
dynamo) venv=${TERN_DYNAMO:-$PWD/../.venv-dynamo} ;;
*)
    echo "usage: deploy/venv.sh vllm|dynamo" >&2
    exit 2
    ;;
esac
requirements=requirements-$name.txt
cmp -s "$requirements" "$venv/installed.txt" && echo "$name: all of it is in $venv" && exit

if [[ $(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])') != 3.11 ]]; then
    echo "$name: skipped: $requirements is for Python 3.11, as Debian 12 has it" >&2
    exit 77
fi
if [[ -e $venv && ! -e $venv/installed.txt && -n $(ls -A "$venv") ]]; then
    echo "$name: $venv is there and was not made by this script: let TERN_${name^^} name another folder" >&2
    exit 1
fi
# The stamp is filled last, so that an interrupted installation is repeated.
echo "$name: installing deploy/$requirements into $venv"
rm -rf "$venv"
mkdir -p "$venv"
: >"$venv/installed.txt"
/usr/bin/python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --require-virtualenv --no-deps -r "$requirements"
cp "$requirements" "$venv/installed.txt"

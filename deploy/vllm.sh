#!/usr/bin/env bash
# Makes .venv-vllm: stock vLLM for a machine without a GPU, with all that deploy/requirements-vllm.txt names. 6.5 GB, and
# minutes. Nothing calls it but `tests/run.sh --full` and you. Where all of it is there it does nothing and needs no
# network. TERN_VLLM names another folder.
set -euo pipefail
cd "$(dirname "$0")"

venv=${TERN_VLLM:-$PWD/../.venv-vllm}
cmp -s requirements-vllm.txt "$venv/installed.txt" && echo "vllm: all of it is in $venv" && exit

if [[ $(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])') != 3.11 ]]; then
    echo "vllm: skipped: requirements-vllm.txt is for Python 3.11, as Debian 12 has it" >&2
    exit 77
fi
if [[ -e $venv && ! -e $venv/installed.txt && -n $(ls -A "$venv") ]]; then
    echo "vllm: $venv is there and was not made by this script: let TERN_VLLM name another folder" >&2
    exit 1
fi
# The stamp is filled last: what was broken off is begun anew.
echo "vllm: installing deploy/requirements-vllm.txt into $venv"
rm -rf "$venv"
mkdir -p "$venv"
: >"$venv/installed.txt"
/usr/bin/python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --require-virtualenv --no-deps -r requirements-vllm.txt
cp requirements-vllm.txt "$venv/installed.txt"

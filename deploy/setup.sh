#!/usr/bin/env bash
# Installs the packages of deploy/packages.txt that are missing, and what deploy/requirements.txt names for the tests in
# Python into .venv. It and deploy/venv.sh alone install anything. Where all of it is there it does nothing and needs no
# network. --build leaves out what only the tests need; what their long forms need it installs where TERN_FULL is set, as
# `tests/run.sh --full` does.
set -euo pipefail
cd "$(dirname "$0")"

what=all
case "${1:-}" in
"") ;;
--build) what=build ;;
*)
    echo "usage: deploy/setup.sh [--build]" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null; then
    echo "setup: no dpkg here: install the equivalents of deploy/packages.txt by hand" >&2
    exit 1
fi

missing=()
while read -r package when _; do
    [[ -z $package || $package == \#* ]] && continue
    [[ $when == test && $what == build ]] && continue
    [[ $when == full && ($what == build || -z ${TERN_FULL:-}) ]] && continue
    state=$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null || true)
    [[ $state == ii* ]] || missing+=("$package")
done <packages.txt

# A package's service is not started by its installation: no test uses it. What stands here says so to Debian meanwhile; where
# the machine has an answer of its own, that holds.
policy=/usr/sbin/policy-rc.d
as_root=()

install_packages() {
    if [[ $(id -u) -ne 0 ]]; then
        if ! command -v sudo >/dev/null; then
            echo "setup: not root and no sudo; as root run: apt-get install -y $*" >&2
            exit 1
        fi
        as_root=(sudo)
    fi
    echo "setup: installing $*"
    "${as_root[@]}" apt-get update -q
    if [[ ! -e $policy ]]; then
        trap '"${as_root[@]}" rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" install -m 755 /dev/stdin "$policy"
    fi
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

# The stamp is written last: what was broken off is begun anew.
install_python() {
    local venv=../.venv
    cmp -s requirements.txt "$venv/installed.txt" && return
    echo "setup: installing deploy/requirements.txt into .venv"
    rm -rf "$venv"
    /usr/bin/python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --require-virtualenv -r requirements.txt
    cp requirements.txt "$venv/installed.txt"
}

if [[ ${#missing[@]} -gt 0 ]]; then
    install_packages "${missing[@]}"
fi
[[ $what == build ]] || install_python
echo "setup: all that is needed is installed"

#!/usr/bin/env bash
# Installs the missing packages of deploy/packages.txt, and into .venv the packages of deploy/requirements.txt for the tests
# in Python. Only this script and deploy/venv.sh install anything. If everything is installed it does nothing and needs no
# network. --build leaves out packages that only the tests need. Packages for the long forms of the tests are installed if
# TERN_FULL is set, as `tests/run.sh --full` does.
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

# The installation of a package must not start its service: no test uses it. This policy file forbids that to Debian during
# the installation; an existing policy of the machine stays.
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

# The stamp is written last, so that an interrupted installation is repeated.
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

#!/usr/bin/env bash
# Installs the packages of deploy/packages.txt that are missing. It is the only script that installs anything. Where all
# of them are there it does nothing and needs no network. --build leaves out those that only the tests need.
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
    state=$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null || true)
    [[ $state == ii* ]] || missing+=("$package")
done <packages.txt

if [[ ${#missing[@]} -eq 0 ]]; then
    echo "setup: every package that is needed is installed"
    exit 0
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
    if ! command -v sudo >/dev/null; then
        echo "setup: not root and no sudo; as root run: apt-get install -y ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi
echo "setup: installing ${missing[*]}"
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
echo "setup: done"

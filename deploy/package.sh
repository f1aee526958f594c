#!/usr/bin/env bash
# Builds the Debian packages ternd, tern-agent, libtern0.2, libtern-dev, python3-tern and tern-tools from this tree into DIR (by default
# build/packages), as the user who calls it. Two builds of one commit are equal, wherever and whenever they are made.
#
#   deploy/package.sh [DIR]
#
# SOURCE_DATE_EPOCH says which time stands in the packages; by default that of the last commit. DEBFULLNAME and DEBEMAIL
# say who maintains them, and whoever gives packages to others sets both: the address in deploy/debian/control is nobody's.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
[[ $# -le 1 ]] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=${1:-$root/build/packages}
mkdir -p "$out"
out=$(cd "$out" && pwd)
for tool in dpkg-buildpackage dh dh_python3 scdoc; do
    command -v "$tool" >/dev/null || { echo "package: $tool is missing: deploy/setup.sh installs what packages need" >&2; exit 1; }
done
export LC_ALL=C.UTF-8 TZ=UTC
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || stat -c %Y "$root/CMakeLists.txt")}
export SOURCE_DATE_EPOCH
maintainer=$(sed -n 's/^Maintainer: //p' "$root/deploy/debian/control")
[[ -z ${DEBFULLNAME:-} || -z ${DEBEMAIL:-} ]] || maintainer="$DEBFULLNAME <$DEBEMAIL>"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tern"
(cd "$root" && if git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files -z --cached --others --exclude-standard
else
    find . \( -path './build*' -o -path './.venv*' \) -prune -o -type f -print0
fi | tar -c --null --ignore-failed-read -T - 2>/dev/null) | tar -x -C "$work/tern"
chmod -R u=rwX,go=rX "$work/tern"
cp -R "$work/tern/deploy/debian" "$work/tern/debian"
MAINTAINER=$maintainer awk '/^Maintainer: / { $0 = "Maintainer: " ENVIRON["MAINTAINER"] } 1' "$root/deploy/debian/control" \
    >"$work/tern/debian/control"
version=$(sed -n 's/^project(tern VERSION \([0-9.]*\) .*/\1/p' "$root/CMakeLists.txt")
cat >"$work/tern/debian/changelog" <<CHANGELOG
tern ($version) unstable; urgency=medium

  * Built from its source tree.

 -- $maintainer  $(date -R -d "@$SOURCE_DATE_EPOCH")
CHANGELOG

cd "$work/tern"
umask 022
dpkg-buildpackage --build=binary --unsigned-source --unsigned-changes >"$work/log" 2>&1 ||
    { tail -n 60 "$work/log" >&2; exit 1; }
cp "$work"/*.deb "$out/"
[[ -z ${TERN_PACKAGE_LOG:-} ]] || cp "$work/log" "$TERN_PACKAGE_LOG"
ls "$out"/*.deb

#!/usr/bin/env bash
# Installs the library into an empty folder and builds a program against it as a user would, with
# the shared and with the static library, by pkg-config alone. The program has functions with names
# of base's.
set -euo pipefail
build=${TERN_BUILD:?the build folder}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cache() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
if [[ ! -f $build/client/libtern.a || -n $(cache TERN_SANITIZE) || $(cache TERN_COVERAGE) == ON ]]; then
    echo "skipped: no plain libtern in this build"
    exit 77
fi
cmake --install "$build" --component library --prefix "$work/usr" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
pc=$(find "$work/usr" -name tern.pc)
export PKG_CONFIG_PATH=${pc%/*}
libdir=$(pkg-config --variable=libdir tern)

cat >"$work/user.c" <<'C'
#include <stdio.h>
#include <string.h>
#include <tern.h>

const char *err_name(int e); /* an application may use any name that does not begin with tern_ */
const char *err_name(int e)
{
    return e ? "mine" : "";
}

int main(void)
{
    struct tern *t = NULL;
    enum tern_err err = tern_connect("/nonexistent/tern.sock", 100, &t);

    printf("%s %s %s\n", tern_version(), err_name(1), tern_strerror(err));
    return err == TERN_DAEMON_LOST && !t && strcmp(err_name(1), "mine") == 0 ? 0 : 1;
}
C
compiler=$(cache CMAKE_C_COMPILER)
read -ra flags <<<"$(pkg-config --cflags tern)"
"$compiler" -std=c17 -Wall -Wextra -Wpedantic -Werror "${flags[@]}" -c -o "$work/user.o" "$work/user.c"
read -ra libs <<<"$(pkg-config --libs tern)"
"$compiler" -o "$work/shared" "$work/user.o" "${libs[@]}"
LD_LIBRARY_PATH=$libdir "$work/shared"
read -ra private <<<"$(pkg-config --libs libprotobuf-c)"
"$compiler" -o "$work/static" "$work/user.o" "$libdir/libtern.a" "${private[@]}"
"$work/static"
[[ $(readelf -d "$work/shared" | grep -c 'libtern.so.0.2') -eq 1 ]] || { echo "the soname is not libtern.so.0.2"; exit 1; }
if command -v c++ >/dev/null; then # the header is for C++ too
    printf '#include <tern.h>\nint main() { return tern_version() ? 0 : 1; }\n' >"$work/user.cc"
    c++ -std=c++20 -Wall -Wextra -pedantic -Werror "${flags[@]}" -o "$work/cxx" "$work/user.cc" "$libdir/libtern.a" "${private[@]}"
    "$work/cxx"
else
    echo "tern.h in C++: not looked at, there is no c++ (package g++)"
fi
bad=$(nm -g --defined-only "$libdir/libtern.a" 2>/dev/null | awk 'NF == 3 { print $3 }' | grep -vE '^tern_[a-z_]+$' || true)
[[ -z $bad ]] || { echo "libtern.a shows:" $bad; exit 1; }

#!/usr/bin/env bash
# Undefined and exported symbols of the built libraries: the core needs only functions of memory and
# of base, so it makes no system call, reads no clock and allocates nothing; libtern exports tern_*
# and nothing else.
set -euo pipefail
build=${TERN_BUILD:?the build folder}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

defined() { # ARCHIVE...
    nm --defined-only -g "$@" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort -u
}

# Instrumentation of a sanitizer or coverage build adds calls of its own.
instrument='^$'
if ! grep -q '^TERN_SANITIZE:[A-Z]*=$' "$build/CMakeCache.txt" || grep -q '^TERN_\(COVERAGE\|FUZZ\):BOOL=ON' "$build/CMakeCache.txt"; then
    instrument='^(__(asan|ubsan|tsan|sanitizer|sancov|gcov|llvm|start___sancov|stop___sancov)_|__gcov)'
fi

forbidden() { # CORE-ARCHIVE BASE-ARCHIVE: symbols that the core needs and may not use
    { defined "$1" "$2"; printf '%s\n' memcpy memmove memset memcmp bcmp memchr strncmp __popcountdi2 _GLOBAL_OFFSET_TABLE_; } | sort -u >"$work/allowed"
    nm -u "$1" 2>/dev/null | awk 'NF == 2 { print $2 }' | sort -u | comm -23 - "$work/allowed" | grep -vE "$instrument" || true
}

core=$build/daemon/core/libtern_core.a base=$build/daemon/base/libtern_base.a
if [[ ! -f $core ]]; then
    echo "skipped: there is no core in this build"
    exit 77
fi

# The check must be able to fail: with one more object that makes a forbidden call.
compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
cp "$core" "$work/libbad.a"
cat >"$work/bad.c" <<'C'
#include <stdlib.h>
#include <time.h>
void *bad(void);
void *bad(void)
{
    return malloc((size_t)time(NULL));
}
C
"$compiler" -c -O0 -o "$work/bad.o" "$work/bad.c"
ar r "$work/libbad.a" "$work/bad.o" 2>/dev/null
if [[ $(forbidden "$work/libbad.a" "$base" | grep -cxE 'malloc|time') -ne 2 ]]; then
    echo "self-test: a core that calls malloc and time was not refused"
    exit 1
fi

bad=$(forbidden "$core" "$base")
if [[ -n $bad ]]; then
    echo "the core calls:" $bad
    exit 1
fi
echo "core: $(defined "$core" | wc -l) symbols of its own, none forbidden"

# With planted bugs the core calls planted_bug, which is above it: so only the twin in tern-sim-bugs may have them.
twin=$build/tests/sim/libtern_core_bugs.a
# The twin is also compiled to count its basic blocks.
if [[ -f $twin && $(forbidden "$twin" "$base" | grep -vx __sanitizer_cov_trace_pc) != planted_bug ]]; then
    echo "self-test: the core with planted bugs should need planted_bug: $(forbidden "$twin" "$base")"
    exit 1
fi

for program in ternd ternctl tern-sim tern-replay tern-bench; do
    [[ -x $build/bin/$program ]] || continue
    if nm "$build/bin/$program" | grep ' planted_bug$' >/dev/null; then
        echo "$program has planted bugs"
        exit 1
    fi
done
if [[ -f $build/bin/tern-sim-bugs ]] && ! nm "$build/bin/tern-sim-bugs" | grep ' planted_bug$' >/dev/null; then
    echo "self-test: tern-sim-bugs should have planted_bug"
    exit 1
fi

library=$build/client/libtern.so
if [[ -f $library ]]; then
    shown=$(nm -D --defined-only "$library" | awk '{ print $3 }' | grep -v '^TERN_0' | sort -u)
    # Sanitizers and coverage export symbols of their own.
    strange=$(grep -vE '^tern_[a-z_]+@@TERN_0(\.[0-9]+)?$' <<<"$shown" | grep -vE "$instrument" || true)
    if [[ -n $strange ]]; then
        echo "libtern shows:" $strange
        exit 1
    fi
    [[ $(wc -l <<<"$shown") -ge 20 ]] || { echo "libtern shows only:" $shown; exit 1; }
    echo "libtern: $(wc -l <<<"$shown") symbols, all tern_* with a version"
fi

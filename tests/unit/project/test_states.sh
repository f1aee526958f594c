#!/usr/bin/env bash
# docs/states.md shows every table of states as in the headers. states.py makes it; here it compares, after it has
# detected an outdated document, a table that it cannot read, and a missing state or machine.
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: python3 is needed to read the headers"; exit 77; }
here=$(dirname "$0")
source_dir=$(realpath "${TERN_SOURCE:-$here/../../..}")
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

states() { python3 -B "$here/states.py" "$@"; }

mkdir -p "$copy/docs" "$copy/daemon/core" "$copy/client"
table='#define LAMP_STATE_TABLE(X) \
    X(LAMP, OFF, TO(LAMP, ON), "dark") \
    X(LAMP, ON, \
      TO(LAMP, OFF) | TO(LAMP, ON), "burns, " \
      "and (may) burn on", "lit")

STATE_MACHINE(lamp, LAMP, LAMP_STATE_TABLE)'
printf '/* A lamp. */\n%s\n' "$table" | tee "$copy/good.h" >"$copy/daemon/core/lamp.h"
states --write "$copy"
states "$copy" >"$copy/out" || true
grep -q '^1 machines, 2 states$' "$copy/out" || { echo "self-test: $(cat "$copy/out")"; exit 1; }
grep -qx '| ON | OFF, ON | burns, and (may) burn on |' "$copy/docs/states.md" &&
    grep -qx 'A lamp.' "$copy/docs/states.md" || { echo "self-test: $(cat "$copy/docs/states.md")"; exit 1; }
for bad in 's/TO(LAMP, ON)/0/' 's/dark/darker/' 's/LAMP, ON/LAMP, DIM/' 's/"dark"/dark/' 's/X(LAMP, OFF/X(DOG, OFF/' 's/LAMP, ON/DOG, ON/' \
    's/^STATE_MACHINE.*//' 's/lamp, LAMP/lamp, DOG/'; do
    printf '/* A lamp. */\n%s\n' "$table" | sed -e "/X(LAMP, ON/! $bad" >"$copy/daemon/core/lamp.h"
    cmp -s "$copy/daemon/core/lamp.h" "$copy/good.h" && { echo "self-test: changes nothing: $bad"; exit 1; }
    if states "$copy" >"$copy/out" 2>&1 || grep -q '^1 machines' "$copy/out"; then
        echo "self-test: not found: $bad"
        exit 1
    fi
done

states "$source_dir"

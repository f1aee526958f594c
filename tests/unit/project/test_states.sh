#!/usr/bin/env bash
# docs/states.md shows every table of states as the headers have it. states.py makes it; here it compares, after it was
# seen to find a document that is out of date, a table that it cannot read, and a state that is none.
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: python3 is needed to read the headers"; exit 77; }
here=$(dirname "$0")
source_dir=$(realpath "${TERN_SOURCE:-$here/../../..}")
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

states() { python3 -B "$here/states.py" "$@"; }

mkdir -p "$copy/docs" "$copy/daemon/core" "$copy/client"
table='#define LAMP_STATE_TABLE(X) \
    X(OFF, TO(ON), "dark") \
    X(ON, \
      TO(OFF) | TO(ON), "burns, " \
      "and (may) burn on")'
printf '/* A lamp. */\n%s\n' "$table" >"$copy/daemon/core/lamp.h"
states --write "$copy"
states "$copy" >"$copy/out" || true
grep -q '^1 machines, 2 states$' "$copy/out" || { echo "self-test: $(cat "$copy/out")"; exit 1; }
grep -qx '| ON | OFF, ON | burns, and (may) burn on |' "$copy/docs/states.md" &&
    grep -qx 'A lamp.' "$copy/docs/states.md" || { echo "self-test: $(cat "$copy/docs/states.md")"; exit 1; }
for bad in 's/TO(ON)/0/' 's/dark/darker/' 's/TO(ON)/TO(DIM)/' 's/"dark"/dark/'; do
    printf '/* A lamp. */\n%s\n' "$table" | sed "0,/X(OFF/ { /X(OFF/ $bad }" >"$copy/daemon/core/lamp.h"
    if states "$copy" >"$copy/out" 2>&1 || grep -q '^1 machines' "$copy/out"; then
        echo "self-test: not found: $bad"
        exit 1
    fi
done

states "$source_dir"

#!/usr/bin/env bash
# A23: with supersession 8 long conversations stay within their windows; without it they exhaust
# c128a_state in turn 19. The plot has a line for each kind.
source "$(dirname "$0")/with_ternd.sh"

"$TERN_BUILD/tests/a23" --svg "$DIR/a23.svg" | tee "$DIR/table" || fail "a23 ended with ${PIPESTATUS[0]}"
[ "$(grep -cE '^ +[0-9]+ ' "$DIR/table")" -eq 240 ] || fail "the table has not 60 turns for each of 1, 2, 4 and 8 sessions"
[ "$(grep -c '<polyline' "$DIR/a23.svg")" -eq 16 ] || fail "the plot has not all its lines"
grep -q 'exhausted at turn 19' "$DIR/a23.svg" || fail "the plot does not say where it was exhausted"
if command -v python3 >/dev/null; then
    python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$DIR/a23.svg" || fail "the plot is no XML"
fi

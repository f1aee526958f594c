#!/usr/bin/env bash
# A state changes only by the move of its machine: state_moves.py checks the sources of the
# products, after it has found each planted way around the move.
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: python3 is needed to read the sources"; exit 77; }
here=$(dirname "$0")
source_dir=$(realpath "${TERN_SOURCE:-$here/../../..}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/daemon"

lamp='#define LAMP_STATE_TABLE(X) X(LAMP, OFF, TO(LAMP, ON), "dark") X(LAMP, ON, 0, "bright")

STATE_MACHINE(lamp, LAMP, LAMP_STATE_TABLE)

void on(struct lamp *l)
{
    lamp_state_move(&l->light, l->light == LAMP_OFF ? LAMP_ON : LAMP_OFF);
    l->count[LAMP_ON] += 1;
    l->lit = l->light == LAMP_ON;
}'
found() { # LINE...: the number of findings with these lines behind the machine
    printf '%s\n' "$lamp" "$@" >"$work/daemon/lamp.c"
    python3 -B "$here/state_moves.py" "$work" >"$work/out" || true
    wc -l <"$work/out"
}
[[ $(found) -eq 1 ]] || { echo "self-test: nothing should be found: $(cat "$work/out")"; exit 1; }
for bad in 'l->light = 1;' 'l->light = to;' 'l.light += 1;' 'l->light++;' '--l->light;' '*l = (struct lamp){.light = 1};' \
    'l->state = 1;' 'l->last = LAMP_ON;' 'l->last = x ? LAMP_ON : y;' 'l->last = (uint8_t)LAMP_OFF;' 'enum dog_state { DOG_AWAKE };' \
    'STATE_MACHINE_IN(uint8_t, cat, CAT, CAT_STATE_TABLE)' 'lamp_state_move(state, LAMP_ON);'; do
    [[ $(found "$bad") -eq 2 ]] || { echo "self-test: should be found, and nothing else: $bad: $(cat "$work/out")"; exit 1; }
done

python3 -B "$here/state_moves.py" "$source_dir" || { echo "A state changes by its machine's *_state_move alone (base/states.h)."; exit 1; }

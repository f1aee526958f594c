#!/usr/bin/env bash
# Man pages: each names exactly the commands, options and settings of the programs, and neither mandoc nor man finds a
# fault. The programs' own --help is the reference, and the sample configuration, which test_config compares with the
# table of settings.
set -euo pipefail
pages=${TERN_BUILD:?the build folder}/deploy/pages
source_dir=${TERN_SOURCE:-$(dirname "$0")/../../..}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[[ -f $pages/ternd.8 ]] || { echo "skipped: no man pages in this build: scdoc (package scdoc) was not found, or see deploy/CMakeLists.txt"; exit 77; }
command -v mandoc >/dev/null || { echo "skipped: mandoc (package mandoc) is needed to read the pages"; exit 77; }

text() { mandoc -Tutf8 -O width=900 "$1" | sed 's/.\x08//g'; }
long() { grep -oE -- '--[a-z][a-z0-9-]*' | sort -u; }
same() { # WHAT WANTED GOT
    diff "$2" "$3" >"$work/diff" || { echo "$1: < in the program, > in the page"; cat "$work/diff"; exit 1; }
}

agent=
[[ ! -x $TERN_BIN/tern-agent ]] || agent=tern-agent.8
member=
[[ ! -x $TERN_BIN/tern-member ]] || member=tern-member.8
for page in ternd.8 $agent $member ternd.yaml.5 ternctl.1 tern-replay.1 tern-bench.1 tern-sim.1; do
    [[ -f $pages/$page ]] || { echo "there is no $page"; exit 1; }
    mandoc -Tlint -W error "$pages/$page" >"$work/lint" || { cat "$work/lint"; exit 1; }
    if command -v man >/dev/null; then
        man --warnings -l "$pages/$page" 2>"$work/lint" >/dev/null
        [[ ! -s $work/lint ]] || { cat "$work/lint"; exit 1; }
    fi
    text "$pages/$page" >"$work/text"
    program=${page%.*}
    [[ $program != ternd.yaml ]] || continue
    # lines that begin with an option: texts may name those of other programs
    "$TERN_BIN/$program" --help | sed -n 's/^ *\(-., \)\?\(--[a-z0-9-]*\).*/\2/p' | sort -u >"$work/want"
    if [[ $program == ternctl ]]; then
        for command in $("$TERN_BIN/ternctl" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p'); do
            grep -qx "   ternctl $command\( [a-z]*\| \[[a-z]*\]\)\?\( [A-Z]*\)*" "$work/text" || { echo "$page does not name the command $command"; exit 1; }
            "$TERN_BIN/ternctl" "$command" --help | sed -n 's/^ *\(-., \)\?\(--[a-z0-9-]*\).*/\2/p' >>"$work/want"
            echo "$command" >>"$work/commands"
        done
        sort -u -o "$work/want" "$work/want"
        [[ $(wc -l <"$work/commands") -eq $(grep -c '^   ternctl ' "$work/text") ]] || { echo "$page names another number of commands"; exit 1; }
    fi
    sed -n 's/^ *\(-., \)\?\(--[a-z0-9-]*\).*/\2/p' "$work/text" | sort -u >"$work/got"
    [[ $(wc -l <"$work/want") -gt 5 ]] || { echo "$program --help: no options were found"; exit 1; }
    same "$page" "$work/want" "$work/got"
done

sed -n 's/^\(# \)\? *\(- \)\?\(# \)\?\([a-z_]*\):\( .*\)\?$/\4/p' "$source_dir/deploy/ternd.yaml" | sort -u >"$work/keys"
[[ $(wc -l <"$work/keys") -gt 80 ]] || { echo "deploy/ternd.yaml: settings were not found"; exit 1; }
text "$pages/ternd.yaml.5" >"$work/yaml"
while read -r key; do
    grep -qE "^ +$key( \(|:|$)" "$work/yaml" || grep -q "\`$key\`" "$work/yaml" || { echo "ternd.yaml.5 does not name $key"; exit 1; }
done <"$work/keys"
echo "pages: ok"

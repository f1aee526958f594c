#!/usr/bin/env bash
# Completion, in a bash and in a zsh that has a terminal: commands, options of one command, files, choices.
set -euo pipefail
made=${TERN_BUILD:?the build folder}/deploy/pages
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[[ -f $made/bash/ternctl ]] || { echo "skipped: no completion in this build: see deploy/CMakeLists.txt"; exit 77; }
mkdir "$work/here"
touch "$work/here/one file.tape"

# The completions that bash offers for the last of these words.
offers() { # WORD...
    (cd "$work/here" && bash --norc -c 'source "$0"; name=$1; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        [[ $(complete -p "$name") == *"-F _$name $name" ]] || exit; "_$name"; printf "%s\n" "${COMPREPLY[@]}"' "$made/bash/$1" "$@" | sort | xargs -d '\n')
}
wants() { # WANTED WORD...
    local want=$1 got
    shift
    got=$(offers "$@")
    [[ $got == "$want" ]] || { echo "bash: ${*@Q}: \"$got\", not \"$want\""; exit 1; }
}
all=$("$TERN_BIN/ternctl" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p' | sort | xargs)
[[ $(offers ternctl "" | tr ' ' '\n' | grep -v -- -- | xargs) == "$all" ]] || { echo "bash: not all commands: $(offers ternctl "")"; exit 1; }
wants "peer peers pin ping pool pools" ternctl p
wants "close" ternctl session c
wants "kick" ternctl engine k
wants "--pool" ternctl tree --po
wants "--pool" ternctl --socket /run/status tree --po
wants "--pool" ternctl --socket = /run/status tree --po
wants "" ternctl status --po
wants "one file.tape" ternctl tape o
wants "read" ternctl tape r
wants "one file.tape" ternctl tape read o
wants "one file.tape" ternctl --socket o
wants "one file.tape" ternctl --socket = o
wants "--socket" ternctl tape --so
wants "--tenant" ternd --tenan
wants "false true" ternd --huge_pages = ""
wants "false true" ternd --huge_pages =
wants "--tenant" ternd --huge_pages --tenan
wants "one file.tape" ternd -c o
wants "eager lazy off" tern-replay --supersede ""
wants "reshard retention rpc" tern-bench r
wants "--keep-going" tern-sim --k
[[ ! -f $made/bash/tern-agent ]] || wants "--namespaces" tern-agent --na
[[ ! -f $made/bash/tern-member ]] || wants "--endpoint" tern-member --en

command -v zsh >/dev/null || { echo "skipped: bash was right, and there is no zsh (package zsh) to try"; exit 77; }
cat >"$work/drive.zsh" <<'ZSH'
# Types each line of $1 into a zsh with completion, presses tab, and prints the resulting line.
zmodload zsh/zpty
zpty shell "env TERM=dumb PS1= zsh -f -i"
zpty -w shell "PS1=; unsetopt beep; setopt no_list_beep; cd ${(q)HERE}; fpath=(${(q)FUNCTIONS} \$fpath); autoload -U compinit; compinit -u -D
told() { print -r -- \"\$BUFFER\" >>${(q)TOLD}; BUFFER= }; zle -N told; bindkey '^T' told; bindkey '^I' expand-or-complete; print >>${(q)TOLD} ready"
n=1
wait_for() { local i; for i in {1..300}; do [[ -f $TOLD && $(wc -l <$TOLD) -ge $1 ]] && return; sleep 0.1; zpty -rt shell junk; done; print "zsh does not answer" >&2; exit 1 }
wait_for 1
while read -r line; do
    zpty -wn shell "$line"$'\t\C-T'
    ((n++))
    wait_for $n
done <$1
zpty -d shell
ZSH
mkdir "$work/functions"
for program in "$made"/zsh/*; do cp "$program" "$work/functions/_${program##*/}"; done
# typed | result
cat >"$work/cases" <<'CASES'
ternctl doct|ternctl doctor 
ternctl --js|ternctl --json 
ternctl tree --po|ternctl tree --pool=
ternctl status --po|ternctl status --po
ternctl tape on|ternctl tape one\ file.tape 
ternctl tape rea|ternctl tape read 
ternctl tape read on|ternctl tape read one\ file.tape 
ternctl session cl|ternctl session close 
ternd --tenan|ternd --tenant=
ternd --huge_pages=f|ternd --huge_pages=false 
tern-replay --supersede=l|tern-replay --supersede=lazy 
tern-bench ret|tern-bench retention 
tern-sim --keep|tern-sim --keep-going 
CASES
cut -d'|' -f1 "$work/cases" >"$work/typed"
HERE=$work/here FUNCTIONS=$work/functions TOLD=$work/told timeout 120 zsh -f "$work/drive.zsh" "$work/typed"
cut -d'|' -f2 "$work/cases" | sed 's/ $//' >"$work/want"
sed '1d; s/ $//' "$work/told" | diff "$work/want" - || { echo "zsh: < wanted, > got"; exit 1; }
echo "completion: ok"

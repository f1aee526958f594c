#!/usr/bin/env bash
# Commits after the one that added this file have a subject `area: verb what` of at most 72 characters that is no
# list, a blank line, and a body. Skipped without the history, as in a release's archive or a shallow clone.
set -euo pipefail
source_dir=$(realpath "${TERN_SOURCE:-$(dirname "$0")/../../..}")
this=tests/unit/project/test_commit_form.sh
subject_max=72

# wrong FILE: prints what is wrong with a message; nothing if it is right
wrong() {
    awk -v most=$subject_max '
        NR == 1 && length($0) > most { print "the subject has " length($0) " characters" }
        NR == 1 && $0 !~ /^[a-z0-9_.\/-]+( [a-z0-9_.\/-]+)?: [a-z]/ { print "the subject is not `area: verb what`" }
        NR == 1 && /[,;]|\.$/ { print "the subject is a list or ends in a full stop" }
        NR == 2 && $0 != "" { print "no blank line follows the subject" }
        NR > 2 && $0 != "" { body = 1 }
        END { if (!body) print "there is no body" }' "$1"
}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
printf 'disk: store prefixes that lie on the host tier\n\nNobody else kept them.\n' >"$dir/good"
[[ -z $(wrong "$dir/good") ]] || { echo "self-test: $(wrong "$dir/good")"; exit 1; }
printf 'disk: %072d\n\nWhy.\n' 0 >"$dir/1"
printf 'Store prefixes\n\nWhy.\n' >"$dir/2"
printf 'disk: store prefixes, drop others\n\nWhy.\n' >"$dir/3"
printf 'disk: store prefixes\nWhy.\n' >"$dir/4"
printf 'disk: store prefixes\n' >"$dir/5"
for i in 1 2 3 4 5; do
    [[ -n $(wrong "$dir/$i") ]] || { echo "self-test: message $i is not refused"; exit 1; }
done

cd "$source_dir"
git rev-parse --git-dir >/dev/null 2>&1 || { echo "skipped: not a git checkout"; exit 77; }
[[ $(git rev-parse --is-shallow-repository) == false ]] || { echo "skipped: a shallow clone"; exit 77; }
first=$(git log --diff-filter=A --format=%H -- "$this" | tail -1)
[[ -n $first ]] || { echo "skipped: the history of this file is not here"; exit 77; }
bad=0
for commit in $(git rev-list --no-merges "$first"..HEAD); do
    git log -1 --format=%B "$commit" >"$dir/message"
    if [[ -n $(wrong "$dir/message") ]]; then
        echo "FAILED: $(git log -1 --format='%h %s' "$commit"): $(wrong "$dir/message" | paste -sd ';')"
        bad=1
    fi
done
[[ $bad -eq 0 ]] || exit 1
echo "all passed"

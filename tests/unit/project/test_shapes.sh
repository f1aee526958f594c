#!/usr/bin/env bash
# Counts undesired shapes of code: a function of the core with two bare uint32_t side by side, which
# a caller may mix up; a state that is assigned and not moved by its table; a folder with too many
# sources to survey. Each count has a ceiling below, which may fall with it but never rise.
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: python3 is needed to read the sources"; exit 77; }
source_dir=$(realpath "${TERN_SOURCE:-$(dirname "$0")/../../..}")
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

# what is counted | at most
ceilings='
pairs   | 2
states  | 0
folders | 0
'

count() { # pairs|states|folders TREE: one line each
    python3 -B - "$@" <<'PYTHON'
import collections, pathlib, re, sys

what, tree = sys.argv[1], pathlib.Path(sys.argv[2])


def text_of(path):
    """Without comments, strings and lines of the preprocessor."""
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', path.read_text())
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return re.sub(r"^#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)


def sources(folder):
    return sorted(p for p in (tree / folder).rglob("*.[ch]"))


if what == "pairs":
    names = set()
    for path in sources("daemon/core"):
        for m in re.finditer(r"^[a-z][\w \*]*?\b(\w+)\(([^(){};]*)\)\s*[;{]", text_of(path), re.M):
            if re.search(r"\buint32_t \w+,\s*uint32_t \w+\s*(?:,|$)", m.group(2)):
                names.add((m.group(1), str(path.relative_to(tree))))
    shown = {}
    for name, path in sorted(names):
        shown.setdefault(name, path)
    print("".join(f"{path}: {name}\n" for name, path in shown.items()), end="")
elif what == "states":
    for path in sources("daemon"):
        function = ""
        for number, line in enumerate(text_of(path).split("\n"), 1):
            m = re.match(r"[a-z][\w \*]*?\b(\w+)\(", line)
            function = m.group(1) if m else function
            # ret->state of a view is the word for operators
            if re.search(r"(?:->|[\w\])]\.)state = ", line) and "ret->state" not in line and not function.endswith("_move"):
                print(f"{path.relative_to(tree)}: {function}: {line.strip()}")
else:
    folders = collections.Counter(p.parent for p in (tree / "daemon").rglob("*.c"))
    for folder, n in sorted(folders.items()):
        if n > 15:
            print(f"{folder.relative_to(tree)}: {n} sources")
PYTHON
}

# Each count must be able to find its shape.
mkdir -p "$copy/daemon/core/many"
cat >"$copy/daemon/core/x.c" <<'C'
/* int commented(uint32_t a, uint32_t b); */
static void mixed_up(struct core *c, uint32_t from,
                     uint32_t to)
{
    c->state = READY;
}
static void lamp_move(struct lamp *l, uint32_t to)
{
    l->state = to;
}
void apart(uint32_t a, const char *b, uint32_t d);
C
for i in $(seq 16); do touch "$copy/daemon/core/many/$i.c"; done
for what in pairs states folders; do
    [[ $(count $what "$copy" | wc -l) -eq 1 ]] || { echo "self-test: $what: $(count $what "$copy")"; exit 1; }
done

status=0
while IFS='|' read -r what most; do
    [[ -n $what ]] || continue
    what=${what// /} most=${most// /}
    count "$what" "$source_dir" >"$copy/found"
    n=$(wc -l <"$copy/found")
    echo "$what: $n, at most $most"
    if ((n > most)); then
        cat "$copy/found"
        status=1
    elif ((n < most)); then
        echo "$what: lower the ceiling to $n"
        status=1
    fi
done <<<"$ceilings"
exit $status

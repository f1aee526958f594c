"""Makes docs/states.md from the tables of states in the headers, or compares it with them. Called by test_states.sh.

daemon/base/states.h defines the form of a table: `#define NAME_STATE_TABLE(X)` with a line X(NAME, STATE, legal next
states, what it means) for each state, some with a word for operators at the end, and the STATE_MACHINE that makes the
enum and the move of it. With --write the document is written anew.
"""
import glob
import os
import re
import sys

DOCUMENT = "docs/states.md"
TABLE = re.compile(r"^#define +(\w+)_STATE_TABLE\(X\)((?:[^\n]*\\\n)*[^\n]*)", re.M)
STRING = r'"((?:[^"\\]|\\.)*)"'
ENTRY = re.compile(r"\s*X\((\w+), (\w+), (0|TO\([^\"]*\)), (" + STRING + r"(?: " + STRING + r")*)(?:, \"\w+\")?\)")
HEAD = """# States

Each machine of states is one table in a header: a state, the states that may follow it, and what it means. A state
changes by its machine's `move` function and in no other way, and a move that the table does not have is a failed
check. This page is made from those tables by `tests/unit/project/states.py --write`, and a test compares it.
"""


def table(name, body):
    """The rows of the document for one table."""
    rows, order, body, at = [], [], re.sub(r"\s*\\?\n\s*", " ", body).rstrip(), 0
    while at < len(body):
        entry = ENTRY.match(body, at)
        if not entry or entry.group(1) != name:
            sys.exit(f"{name}: not read: {body[at:at + 120]}")
        order.append(entry.groups()[1:4])
        at = entry.end()
    names = [state for state, _, _ in order]
    for state, legal, comment in order:
        following = re.findall(rf"TO\({name}, (\w+)\)", legal)
        if len(following) != legal.count("TO(") or not set(following) <= set(names):
            sys.exit(f"{name}: {state}: not read: {legal}")
        following = ", ".join(sorted(following, key=names.index)) or "-"
        rows.append(f"| {state} | {following} | {''.join(re.findall(STRING, comment))} |")
    return rows


def document(tree):
    out, machines, states = [HEAD], 0, 0
    paths = [p for folder in ("daemon", "client") for p in
             sorted(glob.glob(os.path.join(tree, folder, "**", "*.h"), recursive=True))]
    for path in paths:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for m in TABLE.finditer(text):
            name = m.group(1)
            if not re.search(rf"^STATE_MACHINE(_IN)?\((\w+, )?{name.lower()}, {name}, {name}_STATE_TABLE\)$", text, re.M):
                sys.exit(f"{name}: no STATE_MACHINE is made of its table")
            rows = table(name, m.group(2))
            title = name.replace("_", " ").capitalize()
            out.append(f"## {title}\n\n`{os.path.relpath(path, tree)}`")
            before = re.search(r"/\*((?:(?!\*/).)*)\*/\s*$", text[:m.start()], re.S)
            if before:
                out.append(re.sub(r"\s*\n\s*\*?\s*", " ", before.group(1)).strip())
            out.append("| state | next | meaning |\n|---|---|---|\n" + "\n".join(rows))
            machines, states = machines + 1, states + len(rows)
    return "\n\n".join(out).replace("\n\n\n", "\n\n") + "\n", machines, states


def main():
    tree = sys.argv[-1]
    text, machines, states = document(tree)
    path = os.path.join(tree, DOCUMENT)
    if "--write" in sys.argv:
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return 0
    with open(path, encoding="utf-8") as f:
        if f.read() != text:
            print(f"FAILED: {DOCUMENT} is not what the headers say. Run: python3 tests/unit/project/states.py --write .")
            return 1
    print(f"{machines} machines, {states} states")
    return 0


if __name__ == "__main__":
    sys.exit(main())

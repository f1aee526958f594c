"""Makes docs/states.md from the tables of states in the headers, or compares it with them. Called by test_states.sh.

A table is `#define NAME_STATE_TABLE(X)` with a line X(STATE, legal next states, what it means) for each state; the
tables of the core name their machine in front, and some have a word for operators at the end. With --write the document is written anew.
"""
import glob
import os
import re
import sys

DOCUMENT = "docs/states.md"
TABLE = re.compile(r"^#define +(\w+)_STATE_TABLE\(X\)((?:[^\n]*\\\n)*[^\n]*)", re.M)
HEAD = """# States

Each machine of states is one table in a header: a state, the states that may follow it, and what it means. A state
changes by its machine's `move` function and in no other way, and a move that the table does not have is a failed
check. This page is made from those tables by `tests/unit/project/states.py --write`, and a test compares it.
"""


def entries(body):
    """The arguments of each X( ... ) of a table."""
    body = body.replace("\\\n", " ")
    at = 0
    while (m := re.compile(r"\bX\(").search(body, at)):
        depth, args, text, i, quoted = 1, [], "", m.end(), False
        while depth:
            c = body[i]
            quoted ^= c == '"' and body[i - 1] != "\\"
            if not quoted:
                depth += (c == "(") - (c == ")")
            if c == "," and depth == 1 and not quoted:
                args.append(text.strip())
                text = ""
            elif depth:
                text += c
            i += 1
        yield args + [text.strip()]
        at = i


def table(name, body):
    rows, found = [], [args[:-1] if args[-2].startswith('"') else args for args in entries(body)]
    order = [args[-3] for args in found]
    for args in found:
        state, legal, meaning = args[-3:]
        following = sorted(re.findall(r"TO\((?:\w+, *)?(\w+)\)", legal), key=order.index)
        meaning = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', meaning))
        if not meaning or not (following or legal == "0"):
            sys.exit(f"{name}: {args} is not read")
        rows.append(f"| {state} | {', '.join(following) or '-'} | {meaning} |")
    return rows


def document(tree):
    out, machines, states = [HEAD], 0, 0
    paths = [p for folder in ("daemon", "client") for p in
             sorted(glob.glob(os.path.join(tree, folder, "**", "*.h"), recursive=True))]
    for path in paths:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for m in TABLE.finditer(text):
            rows = table(m.group(1), m.group(2))
            title = m.group(1).replace("_", " ").lower()
            out.append(f"## {title[0].upper()}{title[1:]}\n\n`{os.path.relpath(path, tree)}`")
            before = re.search(r"/\*((?:(?!\*/).)*)\*/\s*$", text[:m.start()], re.S)
            if before and not before.group(1).lstrip().startswith("X("):
                out.append(re.sub(r"\s*\n\s*\*?\s*", " ", before.group(1)).replace("X as above", "").strip())
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
    return 0 if machines >= 10 and states >= 40 else 1


if __name__ == "__main__":
    sys.exit(main())

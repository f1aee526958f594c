"""Finds states that change other than by the move of their machine. Called by test_state_moves.sh.

The machines are those of base/states.h, read from the headers of the products. A field keeps a state if some call of a move
names it in the same layer (daemon/core, daemon/seam ...). It lists violations: an assignment to such a field or to one that
is called `state`, a state of a table assigned to any field, an enum of states that has no table, a machine that nobody
moves.
"""
import glob
import os
import re
import sys

MACHINE = re.compile(r"^STATE_MACHINE(?:_IN\(\w+, |\()([a-z_]+), ([A-Z_]+), \w+\)", re.M)
# A session keeps in back_to the state that it returns to: this is no state of its own.
REMEMBERED = "back_to"


def sources(tree):
    for folder in ("daemon", "proto", "client", "kernels"):
        for path in sorted(glob.glob(os.path.join(tree, folder, "**", "*.[ch]"), recursive=True)):
            with open(path, encoding="utf-8") as f:
                text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), f.read(), flags=re.S)
            if os.path.relpath(path, tree) != "daemon/base/states.h":
                yield os.path.relpath(path, tree), text


def layer(path):
    return "/".join(path.split("/")[:2])


def first_argument(text, at):
    """Returns the first argument of a call; `at` is behind its opening parenthesis."""
    start, depth = at, 0
    while depth > 0 or text[at] not in ",)":
        depth += (text[at] in "([") - (text[at] in ")]")
        at += 1
    return text[start:at]


def main():
    tree, broken = sys.argv[1], []
    files = dict(sources(tree))
    every = "\n".join(files.values())
    machines, fields, moved = dict(MACHINE.findall(every)), {}, set()
    for path, text in files.items():
        for m in re.finditer(r"\b([a-z_]+)_state_move\(", text):
            field = re.search(r"(?:->|\.)(\w+)(?:\[\w+\])?$", first_argument(text, m.end()))
            if not field:
                broken.append(f"a move of something that is no field: {path}: {text[m.start():m.start() + 80]!r}")
                continue
            fields.setdefault(layer(path), {"state"}).add(field.group(1))
            moved.add(m.group(1))
    broken += [f"nobody moves the machine {name}" for name in machines if name not in moved]

    states = "|".join(f"{m}_{s}" for m, s in re.findall(r"\bX\((\w+), (\w+),", every) if m in machines.values()) or "-"
    rules = {
        "a state is put into a field": rf"(?:->|\.)(?!{REMEMBERED}\b)\w+(?:\[\w+\])? = (?:[^=;]*\? )?(?:\([\w ]+\))?(?:{states})\b(?!\])",
        "there is no table of these states": rf"\benum (?!(?:{'|'.join(machines) or '-'})_state\b)[a-z_]+_state\b",
    }
    for path, text in files.items():
        field = rf"(?:->|\.)(?:{'|'.join(fields.get(layer(path), {'state'}))})(?:\[\w+\])?"
        rules["a state is assigned"] = rf"{field} (?:[-+|&^]|<<|>>)?= |{field}(?:\+\+|--)|(?:\+\+|--)[\w>.-]*{field};"
        for what, rule in rules.items():
            for m in re.finditer(rule, text):
                number = text.count("\n", 0, m.start()) + 1
                broken.append(f"{what}: {path}:{number}: {text.splitlines()[number - 1].strip()}")
    names = ", ".join(sorted(set().union(*fields.values())))
    print("\n".join(broken + [f"{len(machines)} machines; their fields are called {names}"]))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

"""Mutants: which lines of a source may be changed, how, and in which order they are drawn.

A mutant is one line of one function with one change. The operators are: a relational operator swapped for its
neighbour, `&&` for `||`, `+ 1` or `- 1` removed, a condition negated, a returned `true` or `false` swapped, a call
statement or an assignment deleted. Checks of our own bugs (`check`, `static_assert`) are left alone: they are true
whatever a test does, so no test can miss them. Only constructs that are complete on their line are changed, and no
line moves.
"""

import dataclasses
import os
import random
import re

PARTS = {
    "core": ["daemon/core"],
    "seam": ["daemon/seam"],
    "shell": ["daemon/shell"],
    "proto": ["proto", "daemon/base"],
    "client": ["client"],
    "reshard": ["daemon/reshard", "kernels"],
}
PARTS["rest"] = [folder for part, folders in PARTS.items() if part != "core" for folder in folders]

RELATIONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&"}
OPERATOR = re.compile(r"->|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||<|>")
ONE = re.compile(r" [+-] 1[uUlL]*\b(?![.\w])")
CONDITION = re.compile(r"\b(?:if|while) \(")
RETURN = re.compile(r"\breturn (true|false);")
CALL = re.compile(r"(?:\(void\))?[A-Za-z_][\w.>\[\]-]*\(.*\);")
ASSIGN = re.compile(r" (?:[-+*/|&^%]|<<|>>)?= ")
COUNT = re.compile(r"(?:\+\+|--)\S+;|\S+(?:\+\+|--);")
KEYWORDS = re.compile(r"(?:return|if|while|for|switch|case|default|goto|break|continue|do|else|sizeof|check|static_assert|_Static_assert)\b")
NAME = re.compile(r"([A-Za-z_]\w*)\(")


@dataclasses.dataclass(frozen=True)
class Mutant:
    file: str  # below the root of the repository
    line: int  # from 1
    function: str
    before: str  # the line, without indentation
    after: str
    operator: str

    def applied(self, text):
        """The text of the file with this change."""
        lines = text.split("\n")
        old = lines[self.line - 1]
        assert old.strip() == self.before, f"{self.file}:{self.line} is another line now"
        lines[self.line - 1] = old[: len(old) - len(old.lstrip())] + self.after
        return "\n".join(lines)

    def key(self):
        """The parts that stay the same when the line or the file moves."""
        return os.path.basename(self.file), self.function, self.before, self.after

    def show(self):
        return f"{self.file}:{self.line} ({self.function}, {self.operator})\n    - {self.before}\n    + {self.after}"


def masked(text):
    """The text with comments, strings, character constants and preprocessor lines as blanks; nothing moves."""
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:\\\n|[^\n])*', re.DOTALL | re.MULTILINE
    )
    return token.sub(lambda m: re.sub(r"[^\n]", "\x01", m.group()), text)


def functions(lines):
    """For each masked line the name of the function whose body contains it, or None. By the house style a body
    begins and ends with a brace in the first column, as only tables and records do otherwise."""
    inside, names, head = None, [], ""
    for line in lines:
        if line.startswith("}"):
            inside = None
        names.append(inside)
        if line.startswith("{"):
            found = NAME.search(head)
            inside = found.group(1) if found and head.rstrip().endswith(")") else None
        if inside is None:
            head = (head + " " + line) if line and not line.rstrip().endswith((";", "}")) else ""
    return names


def closing(code, at):
    """The place of the parenthesis that closes the one at `at`, or -1."""
    depth = 0
    for i in range(at, len(code)):
        depth += {"(": 1, ")": -1}.get(code[i], 0)
        if depth == 0:
            return i
    return -1


def outside(code):
    """The code without the contents of parentheses and brackets."""
    while True:
        less = re.sub(r"\([^()\[\]]*\)|\[[^()\[\]]*\]", "", code)
        if less == code:
            return code
        code = less


def is_assignment(code):
    """Whether this is one whole statement that assigns: no declaration, no initialiser."""
    code = outside(code)
    m = ASSIGN.search(code)
    if m:
        left = code[: m.start()]
        return code.endswith(";") and code.count(";") == 1 and re.fullmatch(r"[\w*][\w*.>-]*", left) is not None
    return COUNT.fullmatch(code) is not None


def changes(before, code):
    """Every (operator, after) of one line: `before` as it stands, `code` the same with comments and strings blanked."""
    if KEYWORDS.match(code) and code.startswith(("check", "static_assert", "_Static_assert")):
        return []
    found = []

    def swap(name, start, end, new):
        found.append((name, before[:start] + new + before[end:]))

    for m in OPERATOR.finditer(code):
        if m.group() in RELATIONS:
            swap(f"{m.group()} to {RELATIONS[m.group()]}", m.start(), m.end(), RELATIONS[m.group()])
    for m in ONE.finditer(code):
        swap(f"{m.group().strip()} removed", m.start(), m.end(), "")
    for m in CONDITION.finditer(code):
        end = closing(code, m.end() - 1)
        if end > 0:
            swap("condition negated", m.end(), end, f"!({before[m.end():end]})")
    for m in RETURN.finditer(code):
        other = {"true": "false", "false": "true"}[m.group(1)]
        swap(f"return {other}", m.start(1), m.end(1), other)
    code = code.replace("\x01", " ").rstrip()
    if not KEYWORDS.match(code):
        if CALL.fullmatch(code) and closing(code, code.index("(", 6 if code.startswith("(void)") else 0)) == len(code) - 2:
            found.append(("call deleted", ";"))
        elif is_assignment(code):
            found.append(("assignment deleted", ";"))
    return found


def mutants_of(path, text):
    """One list of mutants for each line of this source that has any."""
    lines, blank = text.split("\n"), masked(text).split("\n")
    result = []
    for number, (line, code, function) in enumerate(zip(lines, blank, functions(blank)), 1):
        if function is None:
            continue
        indent = len(line) - len(line.lstrip())
        before = line.strip()
        found = changes(before, code[indent : indent + len(before)])
        if found:
            result.append([Mutant(path, number, function, before, after, name) for name, after in found])
    return result


def draw(root, part, seed, built):
    """Every line of this part that can be changed, in an order that the seed gives, with one of its changes."""
    lines = []
    for folder in PARTS[part]:
        for where, folders, names in os.walk(os.path.join(root, folder)):
            folders.sort()
            for name in sorted(names):
                path = os.path.relpath(os.path.join(where, name), root)
                if name.endswith(".c") and path in built:
                    with open(os.path.join(where, name), encoding="utf-8") as f:
                        lines += mutants_of(path, f.read())
    chance = random.Random(f"{seed}:{part}")
    chance.shuffle(lines)
    return [chance.choice(line) for line in lines]

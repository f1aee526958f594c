"""Compares the codes in the tree (T8, S-f, P2, fault 40) with docs/rules.md. Called by test_rules.sh.

It finds four kinds of violation:
  undefined   docs/rules.md does not define a code in the tree, or defines it twice
  untested    a definition does not begin with the mark *not built*, and no test names its code
  built       a definition begins with the mark, and a test function has its code as its name
  shown       a code is visible to users in: the public header, a guide, a string of a program

A test names a code in the name of a function (t8_..., s_f_..., xfer_fault_7_...), in a comment, or in a string
that it prints (fault=7). A range such as "S1 to S9" at the head of a file names nothing.
"""
import os
import re
import sys
import tempfile

from planted import ends, plant

MARK = "*not built*"
CODE = re.compile(r"(?<!\w)(?<!\s-)([ENTSYMDXPA]\d{1,2}|[ENSYMDX]-[a-z])(?!\w)")
RANGE = re.compile(r"(?<![\w-])([ENTSYMDXPA]\d{1,2}|[ENSYMDX]-[a-z]|\d+) to ([ENTSYMDXPA]\d{1,2}|[ENSYMDX]-[a-z]|\d+)\b")
FAULT = re.compile(r"\b[Ff]aults?[ =]((?:\d+(?:, | and )?)+)")
IN_NAME = re.compile(r"(?:^|_)(?:(fault)_(\d+)|([entsymdxpa]\d{1,2}))(?=_|$)")
AT_START = re.compile(r"^([ensymdx])_([a-z])(?=_|$)")
TEST_FUNCTION = re.compile(r"(?:\bvoid\s+(?=\w+\s*\(\s*void\s*\*\*)|\b[A-Z_]*TEST\(\s*)(\w+)")
DEFINITION = re.compile(r"^(?:- |\| )\*\*((?:[ENTSYMDXPA]\d{1,2})|(?:[ENSYMDX]-[a-z])|(?:fault \d+))\*\*(.*)$")
# Comments, strings and characters of C, so that one is not taken for the other.
C_TOKEN = re.compile(r'(/\*.*?\*/|//[^\n]*)|("(?:\\.|[^"\\\n])*")|(\'(?:\\.|[^\'\\\n])*\')', re.S)

NOT_CODES = {"M0"}  # "M0 0V10" moves the pen of an SVG drawing
TEXT = (".c", ".h", ".sh", ".py", ".md", ".proto", ".yaml", ".txt", ".cmake", ".map", ".in")
RULES = "docs/rules.md"
SELF = "tests/unit/project/check_rules.py"
# Texts for users: whole files, and folders whose sources have strings for them.
SHOWN_FILES = ("README.md", "docs/engine-guide.md", "docs/operations.md", "docs/rdma.md", "docs/protocol.md",
               "docs/blocks.md", "client/libtern/include/", "daemon/base/tern_err.h", "client/example/", "deploy/")
SHOWN_STRINGS = ("daemon/", "client/", "proto/", "tests/bench/")
# Below tests/, but not tests: they help tests, or tests read them.
NO_TEST = ("tests/unit/rig/", "tests/bench/", "tests/engine/", "tests/oracle/", "tests/testing/",
           "tests/mutate/", "tests/fuzz/corpus/")


def files_of(tree):
    for folder, folders, names in os.walk(tree):
        folders[:] = sorted(f for f in folders
                            if not f.startswith("build") and (not f.startswith(".") or f == ".ci")
                            and f not in ("corpus", "tapes", "third_party", "__pycache__"))
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), tree)
            if path.endswith(TEXT) and path != SELF:
                with open(os.path.join(tree, path), encoding="utf-8", errors="replace") as f:
                    yield path, f.read()


def split_c(text):
    """Returns the comments of a C file, its strings except includes, and its code without both."""
    comments, strings = [], []

    def take(m):
        if m.group(1):
            comments.append(re.sub(r"\s*\n\s*\*?\s*", " ", m.group(1)))
        elif m.group(2):
            strings.append(m.group(2))
        return " "

    code = C_TOKEN.sub(take, re.sub(r'^[ \t]*#[ \t]*include[^\n]*', "", text, flags=re.M))
    return comments, strings, code


def codes_of(text, ranges=True):
    if not ranges:
        text = RANGE.sub(" ", text)
    found = {m for m in CODE.findall(text) if m not in NOT_CODES}
    for numbers in FAULT.findall(text):
        found |= {"fault " + n for n in re.findall(r"\d+", numbers)}
    return found


def codes_of_names(code):
    found = set()
    for name in TEST_FUNCTION.findall(code):
        for fault, number, rule in IN_NAME.findall(name):
            found.add("fault " + number if fault else rule.upper())
        start = AT_START.match(name)
        if start:
            found.add(start.group(1).upper() + "-" + start.group(2))
    return found


def read_rules(text):
    """Returns code -> whether the mark covers its whole definition; and codes defined twice."""
    marked, twice = {}, []
    for line in text.splitlines():
        m = DEFINITION.match(line)
        if m:
            code, rest = m.groups()
            if code in marked:
                twice.append(code)
            marked[code] = bool(re.match(r"[ |]*\*[Nn]ot built[*.:]", rest))
    return marked, twice


def check(tree):
    rules = os.path.join(tree, RULES)
    with open(rules, encoding="utf-8") as f:
        text = f.read()
    marked, twice = read_rules(text)
    found = [f"undefined: {RULES}: {code} is defined twice" for code in twice]
    where, tested, named = {}, set(), set()
    for path, text in files_of(tree):
        is_c = path.endswith((".c", ".h"))
        comments, strings, code = split_c(text) if is_c else ([text], [], "")
        names = codes_of_names(code) if path.startswith("tests/") else set()
        for c in codes_of("\n".join(comments + strings)) | names:
            where.setdefault(c, path)
        if path.startswith("tests/") and not path.startswith(NO_TEST):
            tested |= codes_of("\n".join(comments + strings), ranges=False) | names
            named |= names
        shown = text if path.startswith(SHOWN_FILES) else \
            "\n".join(strings) if path.startswith(SHOWN_STRINGS) else ""
        found += [f"shown: {path} shows {c} to users" for c in sorted(codes_of(shown))]
    found += [f"undefined: {where[c]}: {c} is not in {RULES}" for c in sorted(where) if c not in marked]
    for c, whole in marked.items():
        if not whole and c not in tested:
            found.append(f"untested: {c} is not marked {MARK}, and no test names it")
        if whole and c in named:
            found.append(f"built: {c} is marked {MARK}, and a test function has its name")
    return found, len(marked), len(where)


GOOD = {
    RULES: "- **T1** One owner.\n- **T2** Match.\n- **Y1** *Not built.* A ticket.\n| **S-f** | x | y |\n"
           "| **fault 7** | stale | GONE |\n| **fault 8** | *Not built.* early | found |\n",
    "daemon/core/pages.c": '/* T1: one owner. */\n#include "core/T2.h"\nconst char *s = "one owner";\n',
    "client/libtern/include/tern.h": "/* One owner. */\n",
    "tests/unit/core/test_pages.c": 'static void t1_one_owner(void **state)\n{}\n/* T2 */\n'
                                    'static void s_f_turns(void **state)\n{ puts("fault=7 runs=1"); }\n',
    "tests/unit/rig/rig.h": "/* T1. */\n",
}
BAD = [  # file, text appended to it (None: the file is removed), the kind that must be found
    ("daemon/core/pages.c", "/* T9 */\n", "undefined"),
    ("daemon/core/pages.c", "/* See faults 7 and 9. */\n", "undefined"),
    ("tests/unit/core/test_pages.c", "static void xfer_x5_moves(void **state) {}\n", "undefined"),
    ("tests/unit/core/test_pages.c", "TEST(n_a_key) {}\n", "undefined"),
    (RULES, "- **T1** Again.\n", "undefined"),
    (RULES, "- **T3** A rule without a test.\n", "untested"),
    (RULES, "- **T3** A rule (in part *not built*) without a test.\n", "untested"),
    (RULES, "| **fault 9** | a fault | without a test |\n", "untested"),
    ("tests/unit/core/test_pages.c", "static void y1_ticket(void **state) {}\n", "built"),
    ("tests/unit/core/test_pages.c", "static void xfer_fault_8(void **state) {}\n", "built"),
    ("client/libtern/include/tern.h", "/* See T1. */\n", "shown"),
    ("daemon/shell/log.c", 'const char *s = "append-only (T1)";\n', "shown"),
    ("client/ctl/show.c", 'const char *s = "fault 7";\n', "shown"),
    ("proto/frame.c", 'const char *s = "P1" ;\n/* P1 */\n', "shown undefined"),
    ("deploy/ternd.yaml", "# T1\n", "shown"),
    ("README.md", "S-f holds.\n", "shown"),
]


def self_test():
    with tempfile.TemporaryDirectory() as tree:
        plant(tree, GOOD)
        found = check(tree)[0]
        assert not found, found
        for path, more, kinds in BAD:
            plant(tree, {path: GOOD.get(path, "") + more})
            got = sorted(f.split(":")[0] for f in check(tree)[0])
            assert got == sorted(kinds.split()), f"{path}: {more!r}: {got} in place of {kinds}"
            os.remove(os.path.join(tree, path))
            plant(tree, GOOD)
        text = GOOD["tests/unit/core/test_pages.c"].replace("/* T2 */", "/* T1 to T2 */")
        plant(tree, {"tests/unit/core/test_pages.c": text})
        assert [f for f in check(tree)[0] if f.startswith("untested: T2")], "a range names nothing"
        plant(tree, GOOD)
        plant(tree, {"tests/unit/core/test_pages.c": "", "tests/unit/rig/rig.h": "/* T1 T2 S-f fault 7 */\n"})
        assert len(check(tree)[0]) == 4, "what helps tests is no test"


def main():
    self_test()
    found, rules, codes = check(sys.argv[1])
    return ends(found, f"{rules} definitions, {codes} codes in use", rules >= 150 and codes >= 100)


if __name__ == "__main__":
    sys.exit(main())

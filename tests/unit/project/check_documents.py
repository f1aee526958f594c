"""Checks the documents against the tree. Called by test_documents.sh.

  link    a link between documents leads to an existing file and heading
  path    a path of a source that a document names (core/step.c, shell/tls/*.c) exists
  text    a text of the program that the table of troubles quotes is in the program's sources
  quote   a block of code that names a source after its language is in that source verbatim
  command the table of ternctl's commands is that of client/ctl
  alarm   the table of alarms is that of the daemon
  list    in comments of libtern's headers each error begins a line, which a formatter's reflow may end
  environ a variable of ours that a program reads from the environment is in a document

With --write the two tables are written anew.
"""
import glob
import os
import re
import sys
import tempfile

from planted import ends, plant

DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
ROOTS = ["", "daemon", "tests", "client"]
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"`([\w*{},./-]+/[\w*{},.-]*|[\w*-]+\.(?:sh|md|py))`")
SOURCE = (".c", ".h", ".sh", ".py", ".md", ".proto", ".yaml", ".txt", "/")
TROUBLES = "docs/operations.md"
COMMANDS = "| command | shows or does |\n|---|---|\n"
ALARMS = ("| alarm | one for each | level | begins when | ends when | meaning and action |\n"
          "|---|---|---|---|---|---|\n")
RUN_ON = re.compile(r"^ ?/?\*(?! {3}[A-Z_]+(?:, [A-Z_]+)* {2}).*[^ *] ([A-Z]{4,}(?:_[A-Z]+)*) {2,}[A-Z]", re.M)
ALARM_TABLE = "daemon/shell/alarm/alarm_table.h"
STRINGS = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
ALARM = re.compile(r"X\((\w+), (\w+), (\w+), (\w+), \d+, \d+,\s*" + r",\s*".join([STRINGS] * 4) + r"\)")
PLACEHOLDER = re.compile(r"\.\.\.|\(\.\.\.\)|\b[A-Z]{3,}\b|\bN\b|\w+=")


def read(tree, path):
    with open(os.path.join(tree, path), encoding="utf-8", errors="replace") as f:
        return f.read()


def documents(tree):
    found = [d for d in DOCUMENTS if os.path.exists(os.path.join(tree, d))]
    return found + sorted(os.path.relpath(p, tree) for p in glob.glob(os.path.join(tree, "docs", "*.md")))


def headings(text):
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    names = re.findall(r"^#+ +(.*)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", n.lower()).replace(" ", "-") for n in names}


def bad_links(tree, doc, text):
    for link in LINK.findall(text):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(doc), path)) if path else doc
        if not os.path.exists(os.path.join(tree, target)):
            yield f"link: {doc}: {link}: there is no {target}"
        elif anchor and anchor not in headings(read(tree, target)):
            yield f"link: {doc}: {link}: {target} has no such heading"


def spread(name):
    """a/{b,c}.h -> a/b.h, a/c.h"""
    m = re.match(r"(.*)\{([^{}]*)\}(.*)", name)
    return [y for x in m.group(2).split(",") for y in spread(m.group(1) + x + m.group(3))] if m else [name]


def bad_quotes(tree, doc, text):
    for path, quote in re.findall(r"^```\w+ (\S+)\n(.*?)^```", text, flags=re.M | re.S):
        whole = read(tree, path) if os.path.exists(os.path.join(tree, path)) else ""
        if quote not in whole:
            yield f"quote: {doc}: {path} has no such lines: {quote.strip().splitlines()[0]}"


def bad_paths(tree, doc, text):
    for found in PATH.findall(re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
        for name in spread(found):
            if not name.endswith(SOURCE) or name.startswith(("/", "build/")):
                continue
            anywhere = "/" not in name
            roots = [os.path.join(tree, r) for r in ROOTS]
            if not any(glob.glob(os.path.join(r, "**", name) if anywhere else os.path.join(r, name),
                                 recursive=anywhere) for r in roots):
                yield f"path: {doc}: there is no {name}"


def sources(tree):
    text = []
    for folder in ("daemon", "client", "proto"):
        for path in glob.glob(os.path.join(tree, folder, "**", "*.[ch]"), recursive=True):
            text.append(re.sub(r'"\s*\n\s*"', "", read(tree, os.path.relpath(path, tree))))
    return "\n".join(text)


def bad_texts(tree):
    if not os.path.exists(os.path.join(tree, TROUBLES)):
        return
    rows = [r for r in read(tree, TROUBLES).partition("\n## Trouble\n")[2].splitlines() if r.startswith("| ")]
    program = sources(tree)
    for row in rows:
        for quote in re.findall(r"`([^`]+)`", row.split("|")[1]):
            for part in PLACEHOLDER.split(quote):
                part = part.strip(" :()")
                if len(part) > 6 and part not in program:
                    yield f"text: {TROUBLES}: no program says \"{part}\""


def commands(tree):
    """Returns the rows of the table, from the tables of commands in the order of ternctl's help."""
    ctl = "".join(read(tree, os.path.relpath(p, tree)) for p in glob.glob(os.path.join(tree, "client/ctl/*.c")))
    groups = re.findall(r"\w+", re.search(r"\*const ctl_groups\[\] = \{(.*?),\s*NULL\}", ctl, re.S).group(1))
    for group in groups:
        table = re.search(rf"struct command {group}\[\] = \{{(.*?)\n\}};", ctl, re.S).group(1)
        for name, operand, summary in re.findall(r'^ *\{"([\w-]+)",\s*"([^"]*)",\s*"([^"]*)"', table, re.M):
            yield f"| `{(name + ' ' + operand).strip()}` | {summary}. |\n"


def alarms(tree):
    """Returns the rows of the table, from the table of alarms in its order."""
    table = re.sub(r"\s*\\\n\s*", " ", read(tree, ALARM_TABLE))
    for name, word, of, level, *texts in ALARM.findall(table):
        begins, ends, means, action = ("".join(re.findall(r'"((?:[^"\\]|\\.)*)"', t)) for t in texts)
        yield (f"| `{word}` | {of.lower()} | {level.lower()} | {begins} | {ends} "
               f"| {means[0].upper() + means[1:]}. {action[0].upper() + action[1:]}. |\n")


def bad_lists(tree):
    for path in sorted(glob.glob(os.path.join(tree, "client/libtern/include/*.h"))):
        name = os.path.relpath(path, tree)
        for error in RUN_ON.findall(read(tree, name)):
            yield f"list: {name}: {error} stands in the middle of a line"


def bad_environment(tree, documents_text):
    for folder in ("daemon", "client", "tests/bench", "tests/engine"):
        for path in glob.glob(os.path.join(tree, folder, "**", "*.c"), recursive=True):
            for call in re.findall(r"getenv\(([^()]*)\)", read(tree, os.path.relpath(path, tree))):
                for name in re.findall(r'"(TERN[A-Z_]*)"', call):
                    if not re.search(rf"\b{name}\b", documents_text):
                        yield f"environ: {os.path.relpath(path, tree)}: no document has {name}"


TABLES = {"command": (COMMANDS, commands), "alarm": (ALARMS, alarms)}


def with_table(tree, text, kind):
    title, rows = TABLES[kind]
    head, mark, rest = text.partition(title)
    return head + mark + "".join(rows(tree)) + re.sub(r"^(\|.*\n)*", "", rest)


def bad_tables(tree):
    text = read(tree, TROUBLES) if os.path.exists(os.path.join(tree, TROUBLES)) else ""
    for kind, (title, _) in TABLES.items():
        if title in text and with_table(tree, text, kind) != text:
            yield f"{kind}: {TROUBLES}: the table is not that of the sources: run check_documents.py with --write"


def check(tree):
    found, texts = [], []
    for doc in documents(tree):
        text = read(tree, doc)
        texts.append(text)
        found += [*bad_links(tree, doc, text), *bad_paths(tree, doc, text), *bad_quotes(tree, doc, text)]
    found += [*bad_texts(tree), *bad_tables(tree), *bad_lists(tree), *bad_environment(tree, "\n".join(texts))]
    return found, len(documents(tree))


GOOD = {
    "README.md": "# Tern\n## Two commands\nBy `TERN_A` see [there](docs/operations.md#trouble) and `core/{a,b}.c`, `build/bin/`.\n"
                 "```\n`not/a/path.c`\n```\n```c client/ctl/main.c\n end, NULL};```\n",
    "docs/operations.md": "[here](#trouble), [up](../README.md#two-commands), `demo.sh`\n" + COMMANDS +
                          "| `ask WHOM` | Asks somebody. |\n| `end` | Ends. |\n\n" + ALARMS +
                          "| `too_hot` | peer | warn | it burns | it has cooled | It is hot. Cool it. |\n## Trouble\n"
                          "| `no memory: N bytes` or `start_failed ... reason=wrong_ca` | x | y |\n",
    "daemon/core/a.c": '"no "\n    "memory: %u bytes" "start_failed" "wrong_ca"\n',
    "client/ctl/main.c": "*const ctl_groups[] = {talk,\n end, NULL};",
    "client/ctl/ask.c": 'struct command end[] = {\n{"end", "", "Ends", 0},\n};\n'
                        'const struct command talk[] = {\n  {"ask", "WHOM",\n "Asks somebody", 0},\n};\n',
    ALARM_TABLE: "#define T(X) \\\n    X(HOT, too_hot, PEER, WARN, 0, 5, \\\n      \"it \" \\\n      \"burns\", \"it has cooled\", "
                 "\"it is hot\", \\\n      \"cool it\")\n",
    "client/libtern/include/a.h": "/* Says it.\n *   BUSY    Not now. Or GONE, as an answer.\n *   INVALID  No. */\n",
    "daemon/core/b.c": 'getenv("TERN_A"), getenv("HOME")', "deploy/demo.sh": "", "build/bin/ternd": "",
}
BAD = [("README.md", "[x](docs/nothing.md)", "link"), ("README.md", "[x](docs/operations.md#nothing)", "link"),
       ("docs/operations.md", "\n[x](#nothing)\n", "link"), ("README.md", "`core/c.c`", "path"),
       ("README.md", "`core/{a,c}.c`", "path"), ("README.md", "`nothing.sh`", "path"),
       ("README.md", "```c client/ctl/main.c\n end;\n```\n", "quote"), ("README.md", "```c no.c\nx\n```\n", "quote"),
       ("docs/operations.md", "| `too little memory: N` | x | y |\n", "text"),
       ("docs/operations.md", "| `start_failed ... reason=wrong_name` | x | y |\n", "text"),
       ("client/libtern/include/a.h", "/* Says it. BUSY    Not now. */\n", "list"),
       ("daemon/core/b.c", 'getenv(x ? "TERN_A" : "TERN_B")', "environ")]
STALE = [("command", "client/ctl/ask.c", "Asks", "Begs"), ("command", "client/ctl/main.c", "talk,\n end", "end, talk"),
         ("command", "docs/operations.md", "| `end` | Ends. |\n", ""),
         ("alarm", ALARM_TABLE, "burns", "is cold"), ("alarm", ALARM_TABLE, "PEER", "DAEMON"),
         ("alarm", "docs/operations.md", "Cool it", "Cool down")]


def self_test():
    with tempfile.TemporaryDirectory() as tree:
        plant(tree, GOOD)
        assert not check(tree)[0], check(tree)[0]
        for path, more, kind in BAD:
            plant(tree, {path: GOOD[path] + more})
            got = [f.split(":")[0] for f in check(tree)[0]]
            assert got == [kind], f"{path}: {more!r}: {got} in place of {kind}"
            plant(tree, GOOD)
        for kind, path, old, new in STALE:
            plant(tree, {path: GOOD[path].replace(old, new)})
            got = [f.split(":")[0] for f in check(tree)[0]]
            assert got == [kind], f"{path}: {old!r} as {new!r}: {got}"
            plant(tree, GOOD)


def main():
    self_test()
    if sys.argv[1] == "--write":
        path = os.path.join(sys.argv[2], TROUBLES)
        text = read(sys.argv[2], TROUBLES)
        for kind in TABLES:
            text = with_table(sys.argv[2], text, kind)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return 0
    found, documents_seen = check(sys.argv[1])
    return ends(found, f"{documents_seen} documents", documents_seen >= 5)


if __name__ == "__main__":
    sys.exit(main())

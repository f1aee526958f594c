"""The declarations that engines are compiled against: tern.h, the headers that it includes, and tern_err.h without
comments, one declaration a line.

    check_abi.py ROOT LIST LIBRARY     compares it with LIST, and the calls with the version script and the library
    check_abi.py --write ROOT LIST     writes LIST anew

A difference is no mistake by itself: it means that engines must be compiled anew.
"""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
from pathlib import Path

PARTS = ("", "_pool", "_session", "_fetch", "_lease", "_record", "_async", "_blocks")
HEADERS = ("daemon/base/tern_err.h", *(f"client/libtern/include/tern{part}.h" for part in PARTS))


def declarations(text: str) -> list[str]:
    """Returns each declaration and each #define that an engine sees, in order."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S).replace("\\\n", " ")
    text = re.sub(r"^#ifdef __cplusplus\n.*?^#endif\n", "", text, flags=re.S | re.M)
    found, depth, word = [], 0, ""
    for line in text.splitlines():
        line = " ".join(line.split())
        if line.startswith("#"):
            if line.startswith("#define"):
                found.append(line)
            continue
        for c in line + " ":
            word += c
            depth += (c == "{") - (c == "}")
            if c == ";" and depth == 0:
                found.append(" ".join(word.split()))
                word = ""
    return found


def exported(library: str) -> set[str]:
    told = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[2].split("@")[0] for line in told.splitlines() if " T tern_" in line}


def main() -> int:
    write = sys.argv[1] == "--write"
    root, listed = Path(sys.argv[-2 if write else -3]), Path(sys.argv[-1 if write else -2])
    now = [line for h in HEADERS for line in declarations((root / h).read_text())]
    if write:
        listed.write_text("\n".join(now) + "\n")
        return 0
    bad = 0
    for line in difflib.unified_diff(listed.read_text().splitlines(), now, "abi.txt", "the headers", "", "", 0, ""):
        print(line)
        bad = 1
    calls = {m[1] for line in now if (m := re.match(r"TERN_API .*?\b(tern_\w+)\(", line))}
    script = set(re.findall(r"^ +(tern_\w+);", (root / "client/libtern/libtern.map").read_text(), re.M))
    for what, names in (("libtern.map", script), ("the library", exported(sys.argv[3]))):
        for name in sorted(calls ^ names):
            print(f"{name} is {'not in' if name in calls else 'only in'} {what}")
            bad = 1
    if bad:
        print("engines have to be compiled anew. If that is meant: check_abi.py --write ROOT tests/unit/project/abi.txt")
        return 1
    print(f"{len(now)} declarations, {len(calls)} calls, as they were")
    return 0


sys.exit(main())

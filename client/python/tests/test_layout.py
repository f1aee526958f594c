"""The package's declarations of tern.h equal the C compiler's."""

from __future__ import annotations

import ctypes as ct
import os
import re
import subprocess
from pathlib import Path

from tern import _lib, errors, layout

ROOT = Path(os.environ.get("TERN_SOURCE", Path(__file__).parents[3]))
HEADERS = "".join(h.read_text() for h in sorted((ROOT / "client/libtern/include").glob("*.h")))
INCLUDES = [f"-I{ROOT / 'client/libtern/include'}", f"-I{ROOT / 'daemon/base'}"]


def told_by_c(folder: Path, lines: list[str]) -> list[str]:
    source = folder / "told.c"
    body = "\n".join(f'    printf("%lld\\n", (long long)({line}));' for line in lines)
    source.write_text(f"#include <stdio.h>\n#include <tern.h>\nint main(void)\n{{\n{body}\n    return 0;\n}}\n")
    subprocess.run(["cc", *INCLUDES, source, "-o", folder / "told"], check=True)
    return subprocess.run([folder / "told"], check=True, capture_output=True, text=True).stdout.split()


def test_structs_have_the_sizes_and_offsets_of_the_header(tmp_path: Path) -> None:
    lines, here = [], []
    for name, struct in _lib.STRUCTS.items():
        lines.append(f"sizeof(struct {name})")
        here.append((lines[-1], ct.sizeof(struct)))
        for field in struct._fields_:
            lines.append(f"offsetof(struct {name}, {field[0].removesuffix('_page').removesuffix('_')})")
            here.append((lines[-1], getattr(struct, field[0]).offset))
    there = told_by_c(tmp_path, lines)
    assert [(line, int(n)) for line, n in zip(lines, there)] == here


def test_every_struct_of_the_header_is_here() -> None:
    header = HEADERS
    defined = set(re.findall(r"^struct (tern_\w+) \{", header, re.M))
    assert defined == set(_lib.STRUCTS)


def test_numbers_are_those_of_the_header(tmp_path: Path) -> None:
    named = {f"TERN_{kind.kind}": i for i, kind in enumerate(errors.KINDS) if i}
    named |= {"TERN_ERR_COUNT": len(errors.KINDS), "(int64_t)TERN_STEP_NONE": -1}
    named |= {f"TERN_{word.upper()}": n for word, n in (layout.FAMILIES | layout.ROLES).items()}
    named |= {f"TERN_SUPERSEDE_{word.upper()}": n for word, n in layout.SUPERSEDE.items()}
    named |= {f"TERN_SHARD_{word.upper()}": n for word, n in layout.SHARDS.items()}
    named |= {f"TERN_RETRACT_{word.upper()}": n for word, n in layout.MODES.items()}
    named |= {"TERN_GROUPS_MAX": _lib.GROUPS_MAX, "TERN_BATCH_OPS_MAX": _lib.BATCH_OPS_MAX}
    named |= {"TERN_BLOBS_MAX": _lib.BLOBS_MAX, "TERN_BLOB_NAME_MAX": _lib.BLOB_NAME_MAX}
    named |= {"TERN_RECORD_SPANS_MAX": _lib.RECORD_SPANS_MAX}
    there = told_by_c(tmp_path, list(named))
    assert dict(zip(named, map(int, there))) == named


def test_every_call_takes_as_many_arguments_as_in_the_header() -> None:
    header = HEADERS
    for name, (_, takes) in _lib._CALLS.items():
        found = re.search(rf"\b{name}\(([^;]*)\);", header)
        assert found, f"{name} is not in tern.h or what it includes"
        declared = [] if found[1] == "void" else found[1].split(",")
        assert len(declared) == len(takes), name

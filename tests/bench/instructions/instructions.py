#!/usr/bin/env python3
"""Instructions of Tern's own code for a request, by stage, as callgrind counts them, beside those of instructions.tsv.
The counts depend on no clock and no load. Exit status: 1 if a stage differs from the table by over 2 % and over 20
instructions; 77, a skip, if the table's compiler, flags or instruction set are not those of the build.

    tests/bench/instructions/instructions.py [--build DIR] [--write] [--runs N]

--write writes the table anew: do it in the commit that changes a count, and give the reason there. --runs repeats the
count and prints the difference between the runs."""

import argparse
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[2]
TABLE = HERE / "instructions.tsv"
SHARE = 0.02  # of the table's count
FEW = 20  # instructions
LIMIT_S = 300
PROGRAM = "tern-instructions"
OURS = re.compile(r"(^|/)(daemon|client|proto|kernels|gen/proto)/")
TESTS = re.compile(r"(^|/)tests/")

Counts = dict[tuple[str, str], int]  # of (request, stage)


def skip(why: str) -> None:
    print(f"SKIP: {why}")
    sys.exit(77)


def cache(build: pathlib.Path) -> dict[str, str]:
    lines = (build / "CMakeCache.txt").read_text().splitlines()
    return dict(re.split(r":\w+=", line, maxsplit=1) for line in lines if re.match(r"[A-Z_a-z]+:\w+=", line))


def made_with(build: pathlib.Path) -> str:
    """Returns the settings that the counts depend on, as a line."""
    settings = cache(build)
    compiler = settings["CMAKE_C_COMPILER"]
    version = subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True).stdout.splitlines()[0]
    name = "gcc" if "clang" not in version else "clang"
    major = subprocess.run([compiler, "-dumpversion"], check=True, capture_output=True, text=True).stdout.split(".")[0]
    kind = settings.get("CMAKE_BUILD_TYPE", "")
    flags = " ".join(("-O2 -g" if kind in ("RelWithDebInfo", "Release") else kind, settings.get("CMAKE_C_FLAGS", "")))
    for word in ("TERN_SANITIZE", "TERN_COVERAGE", "TERN_FUZZ", "BUILD_SHARED_LIBS"):
        if settings.get(word, "OFF") not in ("OFF", ""):
            flags += f" {word}={settings[word]}"
    vectors = "avx2" if re.search(r"^flags.*\bavx2\b", pathlib.Path("/proc/cpuinfo").read_text(), re.M) else "baseline"
    return f"{name} {major.strip()}, {flags.strip()}, {os.uname().machine} with {vectors}"


def is_ours(function_file: str, file: str) -> bool:
    """In the program. A function of a test counts with the code of ours that it inlines; any other
    function with everything that it inlines, such as headers of the system."""
    if TESTS.search(function_file):
        return bool(OURS.search(file)) and not TESTS.search(file)
    return function_file != "???" and not TESTS.search(file)


def count_file(path: pathlib.Path, counts: Counts) -> None:
    """Reads one dump of callgrind with uncompressed lines: `ob=`, `fl=`, `fn=`, `fi=` and `fe=` give the place of the
    lines that follow; the line after `calls=` is the callee's count, which the callee's own lines contain."""
    key: tuple[str, str] | None = None
    function_file = file = ""
    callee = in_program = False
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith("desc: Trigger: Client Request: "):
            request, stage = line.split(": ", 3)[3].rsplit("/", 1)
            key = (request, stage)
            counts.setdefault(key, 0)
        elif line.startswith("ob="):
            in_program = line.endswith("/" + PROGRAM)
        elif line.startswith("fl="):
            function_file = file = line[3:]
        elif line.startswith("fn="):
            file = function_file
        elif line.startswith(("fi=", "fe=")):
            file = line[3:]
        elif line.startswith("calls="):
            callee = True
        elif line[:1].isdigit():
            if key and in_program and not callee and is_ours(function_file, file):
                counts[key] += int(line.split()[1])
            callee = False


def count(build: pathlib.Path) -> Counts:
    counts: Counts = {}
    with tempfile.TemporaryDirectory(prefix="tern-instructions-") as folder:
        command = ["valgrind", "--tool=callgrind", "--compress-strings=no", "--compress-pos=no"]
        command += [f"--callgrind-out-file={folder}/out", str(build / "tests" / PROGRAM)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if done.returncode:
            print(done.stderr[-2000:])
            sys.exit(f"tern-instructions under valgrind ended with {done.returncode}")
        dumps = list(pathlib.Path(folder).iterdir())
        for dump in sorted(dumps, key=lambda path: int(path.suffix[1:] or 0)):
            count_file(dump, counts)
    return {key: counts[key] for key in sorted(counts, key=lambda k: k[0])}


def with_sums(counts: Counts) -> Counts:
    sums: collections.Counter[str] = collections.Counter()
    for (request, _), n in counts.items():
        sums[request] += n
    both: Counts = {}
    for (request, stage), n in counts.items():
        both[request, stage] = n
    for request, n in sums.items():
        both[request, "all"] = n
    return dict(sorted(both.items(), key=lambda item: item[0][0]))


def read_table() -> tuple[str, Counts]:
    lines = TABLE.read_text().splitlines()
    made = next(line[len("# made with ") :] for line in lines if line.startswith("# made with "))
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return made, {(request, stage): int(n) for request, stage, n in rows}


def write_table(made: str, counts: Counts) -> None:
    head = [
        "# Instructions of Tern's own code for one request, by stage: written by instructions.py --write.",
        f"# made with {made}",
    ]
    rows = [f"{request}\t{stage}\t{n}" for (request, stage), n in counts.items()]
    TABLE.write_text("\n".join(head + rows) + "\n")


def compare(old: Counts, new: Counts) -> int:
    bad = 0
    print(f"{'request':<36}{'stage':<10}{'table':>9}{'now':>9}{'ratio':>8}")
    for key in dict.fromkeys(list(old) + list(new)):
        was, now = old.get(key), new.get(key)
        if was is None or now is None:
            verdict = "not in the table" if was is None else "gone"
        else:
            verdict = "" if abs(now - was) <= max(SHARE * was, FEW) else "more" if now > was else "fewer"
        bad += bool(verdict)
        ratio = f"{now / was:.4f}" if was and now is not None else "-"
        columns = [str(n) if n is not None else "-" for n in (was, now)]
        print(f"{key[0]:<36}{key[1]:<10}{columns[0]:>9}{columns[1]:>9}{ratio:>8} {verdict}".rstrip())
    if bad:
        print(f"FAILED: {bad} counts differ from {TABLE.relative_to(SOURCE)} by more than 2 %. If that is meant, run")
        print("    python3 tests/bench/instructions/instructions.py --write")
        print("and commit the table with the change, with the reason in the commit's text.")
    return 1 if bad else 0


def print_spread(runs: list[Counts]) -> None:
    spread = max(max(r[key] for r in runs) / max(min(r[key] for r in runs), 1) - 1 for key in runs[0])
    print(f"{len(runs)} runs: they differ by {100 * spread:.3f} % at most")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--build", type=pathlib.Path, default=pathlib.Path(os.environ.get("TERN_BUILD", SOURCE / "build")))
    options.add_argument("--write", action="store_true")
    options.add_argument("--runs", type=int, default=1)
    asked = options.parse_args()
    if not shutil.which("valgrind"):
        skip("no valgrind here")
    if not (asked.build / "tests" / PROGRAM).exists():
        skip("tern-instructions is not built")
    made = made_with(asked.build)
    if not asked.write and made != read_table()[0]:
        skip(f"the table was made with {read_table()[0]}, and this build is of {made}")
    runs = [with_sums(count(asked.build)) for _ in range(asked.runs)]
    if asked.runs > 1:
        print_spread(runs)
    if asked.write:
        write_table(made, runs[0])
        print(TABLE.read_text(), end="")
        return 0
    return compare(read_table()[1], runs[0])


if __name__ == "__main__":
    sys.exit(main())

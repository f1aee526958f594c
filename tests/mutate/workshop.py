"""A copy of the sources below the build folder and a build of it in which one changed source costs one object and one
library: shared libraries, little optimisation. The repository's own files are never written."""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile

# The compiler is the first test: with the project's own warnings a value that is read before it is set doesn't compile.
# Code that is unused or oddly written after a change is no fault of a mutant.
NOT_ASKED = ["empty-body", "unused-variable", "unused-but-set-variable", "unused-parameter", "unused-function", "unused-label",
             "unused-value", "parentheses", "dangling-else", "misleading-indentation", "type-limits", "logical-not-parentheses",
             "bool-compare", "bool-operation", "int-in-bool-context", "unused-but-set-parameter", "unused-const-variable",
             "format-truncation"]  # the last depends on the level of optimisation, which is lower in this build
CONFIGURE = [
    "-DCMAKE_BUILD_TYPE=Mutants",
    "-DCMAKE_C_FLAGS_MUTANTS=-O1",
    # The checks of arrays and numbers that sanitizers make in other builds, without their libraries: a fault ends the test.
    "-DCMAKE_C_FLAGS=-DTERN_CHECK_BOUNDS=1 -fsanitize=bounds,shift,signed-integer-overflow,bool,enum -fsanitize-undefined-trap-on-error " + " ".join("-Wno-" + name for name in NOT_ASKED),
    "-DBUILD_SHARED_LIBS=ON",
    "-DCMAKE_LINK_DEPENDS_NO_SHARED=ON",
    # The daemon's crash report asks where the program begins, which a library cannot know.
    "-DCMAKE_SHARED_LINKER_FLAGS=-Wl,--defsym=__executable_start=0",
    "-DTERN_BUGS=OFF",
]


OBJECT = re.compile(r" -o (\S+)")


class Failed(Exception):
    pass


def quiet(command, cwd):
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout.decode(errors="replace")


def must(command, cwd):
    code, text = quiet(command, cwd)
    if code != 0:
        raise Failed(f"{' '.join(command[:4])} ... failed:\n{text[-4000:]}")
    return text


class Workshop:
    def __init__(self, repository, folder):
        self.repository = repository
        self.tree = os.path.join(folder, "tree")
        self.build = os.path.join(folder, "build")
        self.changed = None  # (file, its own text) while a mutant is applied
        os.makedirs(self.tree, exist_ok=True)

    def commit_of(self, name):
        return must(["git", "rev-parse", "--verify", f"{name}^{{commit}}"], self.repository).strip()

    def files_of(self, commit):
        """{path: (bytes, mode)} of a commit; of the working tree with what git does not ignore for None."""
        if commit:
            packed = subprocess.run(["git", "archive", commit], cwd=self.repository, stdout=subprocess.PIPE, check=True).stdout
            with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
                return {m.name: (tar.extractfile(m).read(), m.mode) for m in tar.getmembers() if m.isfile()}
        names = must(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], self.repository)
        found = {}
        for name in names.split("\0"):
            path = os.path.join(self.repository, name)
            if name and os.path.isfile(path):
                with open(path, "rb") as f:
                    found[name] = (f.read(), os.stat(path).st_mode & 0o777)
        return found

    def take(self, commit):
        """Makes the copy these sources, touching only files that differ, and builds it."""
        wanted = self.files_of(commit)
        for where, _, names in os.walk(self.tree):
            for name in names:
                path = os.path.join(where, name)
                if os.path.relpath(path, self.tree) not in wanted:
                    os.remove(path)
        for name, (data, mode) in wanted.items():
            path = os.path.join(self.tree, name)
            if not os.path.isfile(path) or self.read(path) != data:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as f:
                    f.write(data)
                os.chmod(path, mode | 0o200)
        launcher = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        must(["cmake", "-S", self.tree, "-B", self.build, "-G", "Ninja", *CONFIGURE, *launcher], self.tree)
        must(["ninja", "-C", self.build, "-j", str(os.cpu_count() or 1)], self.tree)
        self.objects = {}
        with open(os.path.join(self.build, "compile_commands.json"), encoding="utf-8") as f:
            for entry in json.load(f):
                name = os.path.relpath(entry["file"], self.tree)
                self.objects.setdefault(name, []).append(os.path.join(self.build, OBJECT.search(entry["command"]).group(1)))
        self.code = {name: self.code_of(name) for name in self.objects if not name.startswith("..")}

    @staticmethod
    def read(path):
        with open(path, "rb") as f:
            return f.read()

    def text(self, name):
        return self.read(os.path.join(self.tree, name)).decode()

    def write(self, name, text):
        with open(os.path.join(self.tree, name), "w", encoding="utf-8") as f:
            f.write(text)

    def code_of(self, name):
        """The objects that the compiler made of this source, everywhere that it is compiled."""
        return [hashlib.sha256(self.read(path)).digest() for path in self.objects[name]]

    def restore(self):
        """Restores the source. The next build makes its objects anew."""
        if self.changed:
            self.write(*self.changed)
            self.changed = None

    def apply(self, name, change):
        """Replaces a source by `change(text)` and builds. Returns "built", "identical" (the compiler makes the same code)
        or "uncompilable"."""
        self.restore()
        text = self.text(name)
        self.changed = (name, text)
        self.write(name, change(text))
        code, _ = quiet(["ninja", "-C", self.build], self.tree)
        if code != 0:
            return "uncompilable"
        return "identical" if self.code_of(name) == self.code[name] else "built"

    def must_build(self):
        must(["ninja", "-C", self.build], self.tree)

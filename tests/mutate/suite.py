"""The tests that a mutant has to survive: those of ctest that need nothing special, simulated histories with a fixed
first seed and, with fewer mutations, the fuzz targets over their corpora. Each runs alone, with a limit on processor
time and on time; processes that it leaves behind are killed."""

import ctypes
import dataclasses
import json
import os
import re
import resource
import signal
import subprocess
import tempfile
import time

SKIPPED = 77
FIRST_SEED = 1
FEW, MANY = 3000, 20000  # histories; the many run after all cheap tests
FUZZ_MUTATIONS = "2000"
# Tests of the sources or of the build, which cannot notice a mutant's behaviour.
NOT_OURS = re.compile(r"^(unit/test_(layers|symbols|symbols_install|traces|mutate|rules|machines)|sim/twice|sim/rdma(_twice)?|gpu/|rdma/)")
# End-to-end tests of a few seconds, those in which a rule of the core shows, and those that take longer. The others
# measure, or take minutes, and are left out.
E2E = {
    "e2e_core": ["errors", "host_memory", "late_write", "peer_pages", "peers", "retract", "subscribe"],
    "e2e": ["tls", "check_config_sh", "crash_sh", "doctor_sh", "example_sh", "plan_sh", "reload_sh", "restart_sh", "tape_sh", "tenant_joins_sh", "ternctl_sh", "watch_sh"],
    "e2e_slow": ["protocol", "protocol_peers", "json_keys_sh", "names_sh", "spill_ctl_sh", "start_fails_sh"],
}
# Folders of tests/unit and other groups that test a part.
GROUPS = {
    "core": ["core", "scenarios", "museum", "histories", "sim", "histories_many", "fuzz_core", "shell", "client", "e2e_core"],
    "seam": ["seam", "fuzz_data", "fuzz_data_plan", "histories_rdma", "histories_rdma_many", "shell", "e2e_core", "e2e", "e2e_slow"],
    "shell": ["shell", "fuzz_requests", "fuzz_wire", "fuzz_tape", "fuzz_config", "client", "sim", "e2e_core", "e2e", "e2e_slow"],
    "proto": ["proto", "base", "shell", "client", "fuzz_wire", "fuzz_frame", "core", "e2e_core", "e2e", "e2e_slow"],
    "client": ["client", "agent", "member", "fuzz_client", "proto", "shell", "e2e_core", "e2e", "e2e_slow"],
    "reshard": ["reshard"],
}
STEADY = {"core", "scenarios", "museum", "histories", "histories_many", "histories_rdma", "histories_rdma_many", "sim", "proto", "base", "reshard",
          "fuzz_core", "fuzz_wire", "fuzz_requests", "fuzz_client", "fuzz_frame", "fuzz_tape", "fuzz_config"}  # same result every time
QUICK_CPU_S, QUICK_WALL_S = 2, 6
CPU_AT_LEAST_S, TIMES_AS_LONG, WAIT_AT_LEAST_S = 4, 10, 30
PR_SET_CHILD_SUBREAPER = 36


@dataclasses.dataclass
class Test:
    name: str
    group: str
    command: list
    environment: dict
    folder: str
    expects: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0

    def quick(self):
        return self.cpu_s < QUICK_CPU_S and self.wall_s < QUICK_WALL_S

    def limits(self):
        """Limits of processor seconds and of seconds; beyond them the test counts as failed."""
        return CPU_AT_LEAST_S + int(TIMES_AS_LONG * self.cpu_s), WAIT_AT_LEAST_S + TIMES_AS_LONG * self.wall_s


def adopt_orphans():
    """Makes processes that a test's daemon leaves running children of this one, so that they can be killed."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children():
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as f:
            return [int(word) for word in f.read().split()]
    except OSError:
        return []


def end_all():
    """Kills every process below this one. Grandchildren become its children when they lose their parents."""
    for _ in range(100):
        left = children()
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except OSError:
                pass


def run(test, limited=True):
    """Returns (exit status, or why the test was killed), processor seconds, seconds."""
    cpu_s, wall_s = test.limits() if limited else (600, 600)

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 2))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory(prefix="mutate-") as scratch:
        environment = {**os.environ, **test.environment, "TMPDIR": scratch}
        child = subprocess.Popen(test.command, cwd=test.folder, env=environment, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=limit, start_new_session=True)
        try:
            status = child.wait(timeout=wall_s)
        except subprocess.TimeoutExpired:
            status = "timeout"
            child.kill()
            child.wait()
        end_all()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return status, cpu, time.monotonic() - start


class Suite:
    def __init__(self, workshop, say):
        self.build, self.say = workshop.build, say
        self.tests = self.of_ctest(workshop.tree) + self.histories(FEW) + self.histories(MANY)
        self.kills = {}

    def histories(self, count):
        program = os.path.join(self.build, "bin", "tern-sim")
        seeds = ["--seeds", str(count), "--first", str(FIRST_SEED)]
        many = "" if count == FEW else "_many"
        return [
            Test(f"histories/{count}", "histories" + many, [program, *seeds, "--audit", "16"], {}, self.build),
            Test(f"histories/{count}_rdma", "histories_rdma" + many, [program, "--rdma", "--seeds", str(count // 3), "--first", str(FIRST_SEED)], {}, self.build),
        ]

    def of_ctest(self, tree):
        groups = {}
        for where, _, names in os.walk(os.path.join(tree, "tests", "unit")):
            for name in names:
                below = os.path.relpath(where, os.path.join(tree, "tests", "unit"))
                groups["unit/" + os.path.splitext(name)[0]] = below.split(os.sep)[0]
        listed = subprocess.run(["ctest", "--test-dir", self.build, "--show-only=json-v1"], stdout=subprocess.PIPE, check=True)
        found = []
        for entry in json.loads(listed.stdout)["tests"]:
            name, properties = entry["name"], {p["name"]: p["value"] for p in entry["properties"]}
            label = name.split("/")[0]
            if label == "e2e":
                group = next((g for g, names in E2E.items() if name[9:] in names), None)
            else:
                group = {"unit": groups.get(name), "fuzz": name[5:]}.get(label, label)
            if NOT_OURS.match(name) or "command" not in entry or not group:
                continue
            command = entry["command"][:-1] + [FUZZ_MUTATIONS] if label == "fuzz" else entry["command"]
            environment = dict(line.split("=", 1) for line in properties.get("ENVIRONMENT", []))
            found.append(Test(name, group, command, environment, properties.get("WORKING_DIRECTORY", self.build)))
        return found

    def measure(self, groups, known):
        """Runs the tests of these groups on the unchanged sources; `known` has earlier results, and gets the new ones.
        A test that fails there is left out, with a message."""
        fit = []
        for test in self.tests:
            if test.group not in groups:
                fit.append(test)
                continue
            if test.name not in known:
                known[test.name] = run(test, limited=False)
            status, test.cpu_s, test.wall_s = known[test.name]
            if status in (0, SKIPPED):
                test.expects = status
                fit.append(test)
            else:
                self.say(f"left out, as it fails without a mutant: {test.name} ({status})")
        self.tests = fit

    def ordered(self, part, file):
        """Tests named after the source first, then those that killed most for their time, of any group."""
        words = set(re.split(r"[/_.]", file)) - {"daemon", "core", "seam", "shell", "client", "proto", "c", "xfer"}

        def rank(test):
            named = bool(words & set(re.split(r"[/_.]", test.name))) and test.wall_s < 3 and not test.group.startswith("e2e")
            worth = (self.kills.get(test.name, 0) + 0.2) / (test.wall_s + 0.03)
            return (0 if named else 1, -worth)

        return sorted((t for t in self.tests if t.group in GROUPS[part]), key=rank)

    def failing(self, tests):
        """The tests that fail, in turn. A test that depends on time must fail twice."""
        for test in tests:
            status, _, _ = run(test)
            sure = test.group in STEADY or status in ("timeout", -signal.SIGXCPU, -signal.SIGKILL)
            if status != test.expects and (sure or run(test)[0] != test.expects):
                yield test

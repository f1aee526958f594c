"""The outcome of each mutant, stored in a file a commit below the work folder, and the list of those judged
equivalent: equivalent.txt, which is read whenever a share is computed, never while mutants run."""

import collections
import glob
import json
import os

from mutants import Mutant

EQUIVALENT = os.path.join(os.path.dirname(os.path.realpath(__file__)), "equivalent.txt")
FIELDS = ("file", "line", "function", "before", "after", "operator")


def mutant_of(entry):
    return Mutant(**{field: entry[field] for field in FIELDS})


def equivalents(path=EQUIVALENT):
    """{key of the mutant: why no test can tell it from the code}. An entry is five lines: in FILE FUNCTION, - the line,
    + the change, why: the reason (which may continue on further lines), and an empty line."""
    found, entry = {}, {}
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate([*f.read().split("\n"), ""], 1):
            if line.startswith("#"):
                continue
            if line.startswith("in "):
                _, entry["file"], entry["function"] = line.split()
            elif line.startswith("- "):
                entry["before"] = line[2:]
            elif line.startswith("+ "):
                entry["after"] = line[2:]
            elif line.startswith("why: "):
                entry["why"] = line[5:]
            elif line.strip() and "why" in entry:
                entry["why"] += " " + line.strip()
            elif line.strip():
                raise ValueError(f"{path}:{number}: not understood: {line}")
            elif entry:
                if len(entry) != 5:
                    raise ValueError(f"{path}:{number}: the entry that ends here is not whole")
                found[(entry["file"], entry["function"], entry["before"], entry["after"])] = entry["why"]
                entry = {}
    return found


class Results:
    def __init__(self, folder, commit):
        self.path = os.path.join(folder, f"results-{commit[:12]}.json")
        self.data = {"commit": commit, "results": []}
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as f:
                self.data = json.load(f)
        self.entries = self.data["results"]

    def save(self):
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path + ".new", "w", encoding="utf-8") as f:
            json.dump(self.data, f, indent=1)
        os.replace(self.path + ".new", self.path)

    def has(self, part, mutant):
        return any(e["drawn_for"] == part and e["file"] == mutant.file and e["line"] == mutant.line for e in self.entries)

    def compiled(self, part):
        return sum(e["drawn_for"] == part and e["outcome"] != "uncompilable" for e in self.entries)

    def add(self, part, mutant, outcome, by, seconds):
        entry = {field: getattr(mutant, field) for field in FIELDS}
        self.entries.append({"drawn_for": part, **entry, "outcome": outcome, "by": by, "seconds": round(seconds, 2)})
        self.save()

    def close(self, entry, outcome, by, seconds):
        entry.update(outcome=outcome, by=by, seconds=round(entry["seconds"] + seconds, 2))
        self.save()

    def later(self, entry, commit, outcome, by):
        entry["later"] = {"commit": commit, "outcome": outcome, "by": by}
        self.save()

    def survivors(self):
        """Survivors that are not listed as equivalent, that no later test has killed and whose line still exists. A
        mutant that is open, because not all tests have run yet, is no survivor."""
        listed = equivalents()
        return [e for e in self.entries if e["outcome"] == "survived" and mutant_of(e).key() not in listed
                and e.get("later", {}).get("outcome") not in ("killed", "gone")]

    def figures(self):
        listed, parts = equivalents(), {}
        for e in self.entries:
            part = parts.setdefault(e["drawn_for"], collections.Counter())
            outcome = e["outcome"]
            if outcome == "survived" and e.get("later", {}).get("outcome") in ("killed", "gone"):
                outcome = e["later"]["outcome"] + "_later"
            elif outcome == "survived" and mutant_of(e).key() in listed:
                outcome = "listed"
            part[outcome] += 1
            part["seconds"] += e["seconds"]
        report = {"commit": self.data["commit"], "parts": {}, "survivors": [mutant_of(e).show() for e in self.survivors()]}
        for name, part in parts.items():
            compiled = sum(part[o] for o in ("killed", "killed_later", "gone_later", "listed", "identical", "survived", "open"))
            killed, equivalent = part["killed"] + part["killed_later"], part["identical"] + part["listed"]
            judged = compiled - equivalent - part["gone_later"] - part["open"]
            report["parts"][name] = {
                "drawn": compiled + part["uncompilable"], "compiled": compiled, "killed": part["killed"],
                "killed_by_later_tests": part["killed_later"], "deleted_later": part["gone_later"], "open": part["open"],
                "equivalent_same_code": part["identical"],
                "equivalent_listed": part["listed"], "survived": part["survived"],
                "killed_percent": round(100 * killed / max(1, judged), 1),
                "equivalent_percent": round(100 * equivalent / max(1, compiled), 1),
                "seconds_a_mutant": round(part["seconds"] / max(1, compiled), 1),
            }
        return report

    def text(self):
        figures = self.figures()
        lines = [f"mutants of {figures['commit'][:12]}"]
        for name, p in figures["parts"].items():
            lines.append(
                f"{name}: {p['compiled']} of {p['drawn']} drawn compiled, {p['killed'] + p['killed_by_later_tests']} killed "
                f"({p['killed_by_later_tests']} by later tests), {p['survived']} survived: {p['killed_percent']} % of those "
                f"that are not equivalent; {p['deleted_later']} lines deleted since, {p['open']} not asked of all tests yet; "
                f"equivalent {p['equivalent_same_code']} (same code) and {p['equivalent_listed']} (listed): "
                f"{p['equivalent_percent']} %; {p['seconds_a_mutant']} s each")
        return "\n".join(lines + ["survivors:"] * bool(figures["survivors"]) + figures["survivors"])


class Times:
    """Result and time of each test on the unchanged sources of a commit. None are stored for the working tree."""

    def __init__(self, folder, commit):
        self.path = os.path.join(folder, f"times-{commit[:12]}.json") if commit else None
        self.known, self.measured = {}, set()
        if commit and os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as f:
                self.known = json.load(f)

    def save(self):
        if self.path:
            with open(self.path, "w", encoding="utf-8") as f:
                json.dump(self.known, f, indent=1)


def newest(folder):
    found = sorted(glob.glob(os.path.join(folder, "results-*.json")), key=os.path.getmtime)
    return Results(folder, os.path.basename(found[-1])[8:-5]) if found else Results(folder, "none")

#!/usr/bin/env bash
# The files beside the metrics: docs/metrics.md has the table of the program; alert rules and dashboard name metrics and
# labels of that table; promtool finds no fault in the rules, and each alert is raised by its cause.
set -euo pipefail
source_dir=$(realpath "${TERN_SOURCE:-$(dirname "$0")/../../..}")
agent=${TERN_BIN:?the programs}/tern-agent
rules=$source_dir/deploy/prometheus/rules.yaml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[[ -x $agent ]] || { echo "skipped: there is no tern-agent in this build"; exit 77; }

"$agent" --metrics >"$work/table"
sed -n '/^| metric /,/^$/p' "$source_dir/docs/metrics.md" | sed '/^$/d' | diff - "$work/table" ||
    { echo "docs/metrics.md: < there, > in the program: put what tern-agent --metrics prints there"; exit 1; }

named() { # what is named, of a table's names and labels
    python3 -B - "$work/table" "$source_dir/deploy/prometheus/dashboard.json" "$@" <<'PYTHON'
import json, re, sys

rows = [line.split(" | ") for line in open(sys.argv[1]) if line.startswith("| `")]
known = {}
for row in rows:
    name, kind = row[0].strip("|` "), row[1]
    labels = set(re.findall(r"`(\w+)`", row[2]))
    for suffix in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
        known[name + suffix] = labels | ({"le"} if suffix == "_bucket" else set())
assert len(known) > 80, "the table was not read"
dashboard = json.load(open(sys.argv[2]))
expressions = [t["expr"] for p in dashboard["panels"] for t in p["targets"]]
assert len(expressions) > 25
assert len({p["id"] for p in dashboard["panels"]}) == len(dashboard["panels"])
for path in sys.argv[3:]:
    expressions.append(open(path).read())
bad = []
for e in expressions:
    for name, selector in re.findall(r"\b(tern_\w+)(\{[^}]*\})?", e):
        if name not in known:
            bad.append(f"there is no metric {name}")
        elif unknown := set(re.findall(r"(\w+) *=", selector)) - known[name] - {"instance"}:
            bad.append(f"{name} has no label {', '.join(unknown)}")
print("\n".join(sorted(set(bad))))
sys.exit(bool(bad))
PYTHON
}
command -v python3 >/dev/null || { echo "skipped: the table is right; python3 is needed for the rest"; exit 77; }
named "$rules"
printf 'rate(tern_no_metric_total[5m]) tern_up{tenant="x"}\n' >"$work/bad"
[[ $(named "$work/bad" | wc -l) -eq 2 ]] || { echo "self-test: a metric and a label that are not there were not found"; exit 1; }

command -v promtool >/dev/null || { echo "skipped: the names are right; promtool (package prometheus) is needed for the rest"; exit 77; }
promtool check rules "$rules"
cp "$rules" "$source_dir/tests/unit/deploy/rules_test.yaml" "$work/"
(cd "$work" && promtool test rules rules_test.yaml)
# Each alert is among those tests, and has a line with the operator's action.
grep -oE 'alert: \w+' "$rules" | while read -r _ alert; do
    grep -q "alertname=\"$alert\"" "$work/rules_test.yaml" || { echo "$alert is not tested"; exit 1; }
    grep -q "\`$alert\`" "$source_dir/docs/operations.md" || { echo "docs/operations.md does not name $alert"; exit 1; }
done
# The tests can fail: without its alarm, one of them does.
sed -i 's/expr: tern_up == 0/expr: tern_up == 2/' "$work/rules.yaml"
! (cd "$work" && promtool test rules rules_test.yaml) >/dev/null 2>&1 || { echo "self-test: an alert that is never raised was not found"; exit 1; }
echo "prometheus: ok"

#!/usr/bin/env bash
# The Kubernetes manifests: valid by the schemas that kubernetes-validate brings along, and true: ternd reads the
# configuration in them, it fits the memory of the container, and its sockets lie in volumes of their own.
set -euo pipefail
source_dir=$(realpath "${TERN_SOURCE:-$(dirname "$0")/../../..}")
venv=$source_dir/.venv/bin
[[ -x $venv/kubernetes-validate ]] || { echo "skipped: there is no kubernetes-validate in .venv (deploy/setup.sh makes it)"; exit 77; }
"$venv/kubernetes-validate" --strict --quiet --no-warn "$source_dir"/deploy/kubernetes/{ternd,engine}.yaml
"$venv/python" -B - "$source_dir/deploy/kubernetes" "$TERN_BIN/ternd" <<'PYTHON'
import pathlib, re, subprocess, sys, tempfile, yaml

folder, ternd = pathlib.Path(sys.argv[1]), sys.argv[2]
one = {d["kind"]: d for d in yaml.safe_load_all((folder / "ternd.yaml").read_text())}
pod = one["DaemonSet"]["spec"]["template"]["spec"]
container = pod["containers"][0]
text = one["ConfigMap"]["data"]["ternd.yaml"]
config = yaml.safe_load(text)
with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
    file.write(text)
    file.flush()
    flags = [a.replace("$(NODE_NAME)", "host-a").replace("$(HOST_IP)", "10.0.0.1") for a in container["args"]]
    flags = [f"--config={file.name}" if a.startswith("--config=") else a for a in flags]
    plan = subprocess.run([ternd, "--plan", *flags], capture_output=True, text=True)
assert plan.returncode == 0, plan.stderr
needs = int(re.search(r"^memory_bytes +(\d+)", plan.stdout).group(1))
limit = container["resources"]["limits"]["memory"]
assert limit == container["resources"]["requests"]["memory"] and limit.endswith("Gi")
assert needs * 1.02 < int(limit[:-2]) << 30, f"{needs} bytes do not fit {limit}"

mounts = {m["mountPath"] for m in container["volumeMounts"]}
volumes = {v["name"]: v for v in pod["volumes"]}
sockets = [t["socket"] for t in config["tenants"]] + [config["admin"]["socket"]]
folders = [s.rpartition("/")[0] for s in sockets]
assert len(set(folders)) == len(folders), "each tenant has a folder of its own"
for at in folders:
    assert at in mounts, f"{at} is no volume"
    name = next(m["name"] for m in container["volumeMounts"] if m["mountPath"] == at)
    assert volumes[name]["hostPath"]["path"] == at, "engines look for it at the same path"
assert pod["hostPID"] and pod["hostNetwork"]
assert {"name": "TERN_ADMIN_SOCKET", "value": config["admin"]["socket"]} in container["env"]
assert config["data_port"] in [p["containerPort"] for p in container["ports"]]
assert pod["terminationGracePeriodSeconds"] > 20

# The agent asks at the daemon's socket, which it cannot replace, and is scraped where it listens.
agent = pod["containers"][1]
assert {"name": "TERN_ADMIN_SOCKET", "value": config["admin"]["socket"]} in agent["env"]
assert [m["mountPath"] for m in agent["volumeMounts"] if m["readOnly"]] == [config["admin"]["socket"].rpartition("/")[0]]
port = agent["ports"][0]
assert agent["args"] == [f"--listen=$(HOST_IP):{port['containerPort']}"]
monitor = yaml.safe_load((folder / "podmonitor.yaml").read_text())
labels = one["DaemonSet"]["spec"]["template"]["metadata"]["labels"].items()
assert monitor["kind"] == "PodMonitor" and monitor["metadata"]["namespace"] == one["DaemonSet"]["metadata"]["namespace"]
assert monitor["spec"]["selector"]["matchLabels"].items() <= labels
assert [(e["port"], e["path"]) for e in monitor["spec"]["podMetricsEndpoints"]] == [(port["name"], "/metrics")]

engine = yaml.safe_load((folder / "engine.yaml").read_text())["spec"]
paths = [v["hostPath"]["path"] for v in engine["volumes"]]
assert paths == [folders[0]], "an engine has its tenant's folder alone"
assert not engine.get("hostPID")
PYTHON
echo "kubernetes: ok"

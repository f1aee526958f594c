"""Checks the Kubernetes manifests with ternd. Called by test_kubernetes.sh: FOLDER TERND WORK. Leaves the deployment
with GPUs, ternd.yaml with the patches of kustomization.yaml, in WORK/gpu.yaml."""
import os
import pathlib
import re
import subprocess
import sys

import yaml

folder, ternd, work = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
GPUS = [f"GPU-7374616e-6469-6e00-0000-00000000000{i}" for i in range(8)]


def of_kind(text):
    return {d["kind"]: d for d in yaml.safe_load_all(text)}


def patched(base, patch):
    """A strategic merge, as far as the patches need it: objects in lists are the same one if their keys are equal."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return base | {k: patched(base[k], v) if k in base else v for k, v in patch.items()}
    if not (isinstance(base, list) and all(isinstance(p, dict) for p in base + patch)):
        return patch
    key = next(k for k in ("mountPath", "name") if all(k in p for p in base + patch))
    old, new = ({p[key]: p for p in side} for side in (base, patch))
    return [patched(old[k], new[k]) if k in old and k in new else (new | old)[k] for k in old | new]


def plan(config, args, why=None):
    """The output of `ternd --plan` with the container's arguments on some host; with `why`, ternd must refuse."""
    (work / "ternd.yaml").write_text(config)
    flags = [a.replace("$(NODE_NAME)", "host-a").replace("$(HOST_IP)", "10.0.0.1") for a in args]
    flags = [f"--config={work}/ternd.yaml" if a.startswith("--config=") else a for a in flags]
    done = subprocess.run([ternd, "--plan", *flags], capture_output=True, text=True)
    if why is None:
        assert done.returncode == 0, done.stderr
        return {k: int(v) for k, v in re.findall(r"^ *(\w+) +(\d+)", done.stdout, re.M)}
    assert done.returncode == 2 and why in done.stderr, (done.stdout, done.stderr)
    return None


def mounted(container, path):
    return next((m["name"] for m in container["volumeMounts"] if m["mountPath"] == path), None)


def holds(kinds, text):
    """text: the configuration as ternd reads it"""
    pod = kinds["DaemonSet"]["spec"]["template"]["spec"]
    container, agent = pod["containers"]
    config = yaml.safe_load(text)
    needs = plan(text, container["args"])
    limit = container["resources"]["limits"]["memory"]
    assert limit == container["resources"]["requests"]["memory"] and limit.endswith("Gi")
    assert needs["memory_bytes"] * 1.02 < int(limit[:-2]) << 30, f"{needs['memory_bytes']} bytes do not fit {limit}"

    volumes = {v["name"]: v for v in pod["volumes"]}
    for one in pod["containers"] + pod.get("initContainers", []):
        assert {m["name"] for m in one["volumeMounts"]} <= set(volumes), f"{one['name']} mounts what is not there"
    file = next(a for a in container["args"] if a.startswith("--config=")).partition("=")[2]
    assert mounted(container, file.rpartition("/")[0]), f"{file} is in no volume"
    sockets = [t["socket"] for t in config["tenants"]] + [config["admin"]["socket"]]
    folders = [s.rpartition("/")[0] for s in sockets]
    assert len(set(folders)) == len(folders), "each tenant has a folder of its own"
    for at in folders:
        name = mounted(container, at)
        assert name, f"{at} is no volume"
        assert volumes[name]["hostPath"]["path"] == at, "engines look for it at the same path"
    assert pod["hostPID"] and pod["hostNetwork"]
    assert {"name": "TERN_ADMIN_SOCKET", "value": config["admin"]["socket"]} in container["env"]
    assert config["data_port"] in [p["containerPort"] for p in container["ports"]]
    assert pod["terminationGracePeriodSeconds"] > 20

    # The agent uses the daemon's socket, which it cannot replace, and is scraped where it listens.
    assert {"name": "TERN_ADMIN_SOCKET", "value": config["admin"]["socket"]} in agent["env"]
    assert [m["mountPath"] for m in agent["volumeMounts"] if m["readOnly"]] == [config["admin"]["socket"].rpartition("/")[0]]
    port = agent["ports"][0]
    assert agent["args"] == [f"--listen=$(HOST_IP):{port['containerPort']}"]
    monitor = yaml.safe_load((folder / "podmonitor.yaml").read_text())
    labels = kinds["DaemonSet"]["spec"]["template"]["metadata"]["labels"].items()
    assert monitor["kind"] == "PodMonitor" and monitor["metadata"]["namespace"] == kinds["DaemonSet"]["metadata"]["namespace"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels
    assert [(e["port"], e["path"]) for e in monitor["spec"]["podMetricsEndpoints"]] == [(port["name"], "/metrics")]

    engine = yaml.safe_load((folder / "engine.yaml").read_text())["spec"]
    paths = [v["hostPath"]["path"] for v in engine["volumes"]]
    assert paths == [folders[0]], "an engine has its tenant's folder alone"
    assert not engine.get("hostPID")
    return needs


def with_gpus(plain):
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert kustomization["resources"] == ["ternd.yaml"]
    kinds = dict(plain)
    for patch in kustomization["patches"]:
        one = yaml.safe_load((folder / patch["path"]).read_text())
        kinds[one["kind"]] = patched(kinds[one["kind"]], one)
    (work / "gpu.yaml").write_text(yaml.safe_dump_all(kinds.values(), sort_keys=False))
    return kinds


def of_this_host(init, text, nvidia_smi):
    """Runs the first container's script, with its folders in WORK and the given nvidia-smi."""
    bin_dir, config, made = work / "bin", work / "config", work / "made"
    for d in (bin_dir, config, made):
        d.mkdir(exist_ok=True)
    (config / "ternd.yaml").write_text(text)
    (bin_dir / "nvidia-smi").write_text("#!/bin/sh\n" + nvidia_smi)
    (bin_dir / "nvidia-smi").chmod(0o755)
    shell, flags, script = init["command"]
    script = script.replace("/etc/tern-config", str(config)).replace("/run/tern-config", str(made))
    env = os.environ | {"PATH": f"{bin_dir}:{os.environ['PATH']}"}
    done = subprocess.run([shell, flags, script], env=env, capture_output=True, text=True)
    return (made / "ternd.yaml").read_text() if done.returncode == 0 else None


def check_gpus(kinds):
    pod = kinds["DaemonSet"]["spec"]["template"]["spec"]
    (init,), (container, agent) = pod["initContainers"], pod["containers"]
    text = kinds["ConfigMap"]["data"]["ternd.yaml"]
    says = "".join(f"echo {g}\n" for g in GPUS)
    asked = 'test "$*" = "--query-gpu=uuid --format=csv,noheader"\n'
    made = of_this_host(init, text, f"set -e\n{asked}{says}")
    assert made and yaml.safe_load(made)["tenants"][0]["devices"] == "+".join(GPUS), made
    needs = holds(kinds, made)
    assert needs["device_bytes"] == 8 * (40 << 30), needs
    assert of_this_host(init, text, f"{says}exit 9\n") is None, "nvidia-smi failed, and the daemon would start"
    fewer = of_this_host(init, text, f"echo {GPUS[0]}\n")
    plan(fewer, container["args"], "names 1 devices for 8 regions")
    plan(text, container["args"], "names 1 devices for 8 regions")  # nobody has filled them in

    assert pod["runtimeClassName"] == "nvidia"
    env = {c["name"]: {e["name"]: e.get("value") for e in c["env"]} for c in (init, container, agent)}
    assert env["gpus"]["NVIDIA_VISIBLE_DEVICES"] == env["ternd"]["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert "compute" in env["ternd"]["NVIDIA_DRIVER_CAPABILITIES"] and "utility" in env["gpus"]["NVIDIA_DRIVER_CAPABILITIES"]
    assert "NVIDIA_VISIBLE_DEVICES" not in env["agent"], "the agent needs no GPU"
    for one in (init, container, agent):
        asks = one["resources"]["requests"] | one["resources"]["limits"]
        assert not [a for a in asks if a.startswith("nvidia.com/")], "the engines' GPUs"


bare = of_kind((folder / "ternd.yaml").read_text())
holds(bare, bare["ConfigMap"]["data"]["ternd.yaml"])
check_gpus(with_gpus(bare))

#!/usr/bin/env bash
# The Kubernetes manifests, with GPUs and without: valid by the schemas of kubernetes-validate, and right: ternd
# reads the configuration in them, it fits the memory of the container, and its sockets lie in volumes of their own.
set -euo pipefail
source_dir=$(realpath "${TERN_SOURCE:-$(dirname "$0")/../../..}")
venv=$source_dir/.venv/bin
[[ -x $venv/kubernetes-validate ]] || { echo "skipped: there is no kubernetes-validate in .venv (deploy/setup.sh makes it)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$venv/python" -B "$(dirname "$0")/manifests.py" "$source_dir/deploy/kubernetes" "$TERN_BIN/ternd" "$work"
"$venv/kubernetes-validate" --strict --quiet --no-warn "$source_dir"/deploy/kubernetes/{ternd,engine}.yaml "$work/gpu.yaml"
# The manifest that manifests.py made equals that of kubectl.
if kubectl kustomize "$source_dir/deploy/kubernetes" >"$work/kustomized.yaml" 2>"$work/why"; then
    "$venv/python" -B -c '
import sys, yaml
ours, theirs = (sorted(yaml.safe_load_all(open(f)), key=lambda d: d["kind"]) for f in sys.argv[1:])
def plain(x): # the order of what has a name says nothing
    if isinstance(x, list) and all(isinstance(e, dict) for e in x):
        return sorted((plain(e) for e in x), key=repr)
    return {k: plain(x[k]) for k in sorted(x)} if isinstance(x, dict) else x
assert plain(ours) == plain(theirs), "kubectl kustomize makes another one"
' "$work/gpu.yaml" "$work/kustomized.yaml"
else
    echo "kubernetes: no kubectl that knows deploy/kubernetes/kustomization.yaml: $(tail -n 1 "$work/why")"
fi
echo "kubernetes: ok"

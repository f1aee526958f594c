#!/usr/bin/env bash
# The units: systemd finds no fault in them, they name the paths of the sample configuration, and the exposure of each
# service, as systemd-analyze counts it, is at most 2.0; that of ternd does not change with the drop-in for GPUs.
set -euo pipefail
build=${TERN_BUILD:?the build folder}
source_dir=$(realpath "${TERN_SOURCE:-$(dirname "$0")/../../..}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
most=20 # tenths
fail() { echo "$*"; exit 1; }

unit=$build/deploy/systemd/ternd.service
[[ -f $unit ]] || { echo "skipped: no units in this build"; exit 77; }
admin=$(sed -n '/^admin:/,/^[a-z]/s/^  socket: *\([^ ]*\).*/\1/p' "$source_dir/deploy/ternd.yaml")
grep -qx "ListenStream=$admin" "$source_dir/deploy/systemd/ternd.socket" || fail "ternd.socket does not listen at $admin"
tenant=$(sed -n '/^tenants:/,/^[a-z#]/s/^    socket: *\([^ ]*\).*/\1/p' "$source_dir/deploy/ternd.yaml")
[[ $tenant == /run/tern/default.sock ]] || fail "the sample's tenant has its socket at $tenant, not where ternd-tenant@default.socket has it"
grep -qx 'ListenStream=/run/tern/%i.sock' "$source_dir/deploy/systemd/ternd-tenant@.socket" || fail "ternd-tenant@.socket listens elsewhere"
ms() { sed -n "s/^# *$1: *\([0-9]*\).*/\1/p" "$source_dir/deploy/ternd.yaml"; }
stop=$(sed -n 's/^TimeoutStopSec=//p' "$unit")
(($(ms drain_ms) + $(ms shutdown_ms) < stop * 1000)) || fail "TimeoutStopSec=$stop is less than a drain and a shutdown take by default"

command -v systemd-analyze >/dev/null || { echo "skipped: the paths are right, and there is no systemd-analyze (package systemd) for the rest"; exit 77; }
cp "$source_dir"/deploy/systemd/*.socket "$work/"
services=(ternd)
for service in tern-agent tern-member; do
    [[ -f $build/deploy/systemd/$service.service ]] || continue
    services+=("$service")
    sed "s#^ExecStart=[^ ]*#ExecStart=$TERN_BIN/$service#" "$build/deploy/systemd/$service.service" >"$work/$service.service"
done
mv "$work/ternd-tenant@.socket" "$work/ternd-tenant@default.socket"
sed "s#^ExecStart=[^ ]*#ExecStart=$TERN_BIN/ternd#" "$unit" >"$work/ternd.service"
verify() {
    (cd "$work" && SYSTEMD_UNIT_PATH=$work: systemd-analyze verify --man=no "${services[@]/%/.service}" ./ternd.socket ./ternd-tenant@default.socket) >"$work/faults" 2>&1 ||
        { cat "$work/faults"; fail "systemd-analyze verify"; }
    if grep -F "$work" "$work/faults"; then fail "systemd-analyze verify has found faults"; fi
}
exposure() { # SERVICE
    systemd-analyze security --offline=true --no-pager --threshold=$most "$work/$1.service" >"$work/score" ||
        { cat "$work/score"; fail "the exposure of $1 is above $((most / 10)).$((most % 10))"; }
    tail -n 1 "$work/score"
}
verify
for service in "${services[@]}"; do exposure "$service"; done

# The drop-in for GPUs allows their devices, and does not raise the exposure.
bare=$(exposure ternd)
mkdir "$work/ternd.service.d"
cp "$source_dir/deploy/systemd/gpu.conf" "$work/ternd.service.d/"
verify
[[ $(exposure ternd) == "$bare" ]] || { exposure ternd; fail "that is with gpu.conf, and it was: $bare"; }
exposure ternd >/dev/null
for group in char-nvidia:rw char-nvidia-frontend:rw char-nvidia-uvm:rw char-nvidia-caps:r char-infiniband_verbs:rw; do
    grep -q "DeviceAllow=.* $group" "$work/score" || { grep DeviceAllow= "$work/score"; fail "gpu.conf does not let $group in"; }
done
# These checks can fail, also because of a drop-in.
printf '[Service]\nPrivateTmp=no\nNoSuchSetting=1\n' >"$work/ternd.service.d/more.conf"
if (verify) >/dev/null; then fail "self-test: a setting that is none was not found in a drop-in"; fi
[[ $(exposure ternd 2>/dev/null) != "$bare" ]] || fail "self-test: a drop-in does not count"
if grep -E '^(PrivateDevices|PrivateNetwork|ProtectProc|ProcSubset|PrivateUsers)=' "$unit"; then fail "these keep the daemon from what it needs: see the unit's last comment"; fi
echo "units: ok"

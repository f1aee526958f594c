#!/usr/bin/env bash
# `ternctl doctor` reports the truth: the limit and the devices of this host, with RDMA off by
# default and with RDMA requested.
source "$(dirname "$0")/with_ternd.sh"
needs python3 "to check the JSON"

# doctor EXPRESSION: it holds for the answer's rdma r; `limit` is the kernel's, `devices` are those of sysfs
doctor() {
    "$CTL" doctor --json >"$DIR/doctor"
    python3 - "$DIR/doctor" "$TERND_PID" "$1" <<'PY' || fail "doctor: $1 in $(cat "$DIR/doctor")"
import json, os, sys
r = json.load(open(sys.argv[1]))["rdma"]
line = next(l for l in open(f"/proc/{sys.argv[2]}/limits") if l.startswith("Max locked memory"))
limit = None if line.split()[3] == "unlimited" else int(line.split()[3])
caps = next(l for l in open(f"/proc/{sys.argv[2]}/status") if l.startswith("CapEff"))
exempt = int(caps.split()[1], 16) >> 14 & 1 == 1
sysfs = "/sys/class/infiniband"
devices = sorted(os.listdir(sysfs)) if os.path.isdir(sysfs) and r["built"] else []
assert r["memlock_bytes"] == limit, limit
assert r["memlock_exempt"] == exempt, exempt
assert sorted(d["device"] for d in r["devices"]) == devices, devices
assert all(d["state"] for d in r["devices"])
assert eval(sys.argv[3])
PY
}

ulimit -S -l 64 # KiB; less than the tenant's memory
ternd_start "" 16M 2
doctor "r['wanted'] is False and r['in_use'] is False and r['memlock_bytes'] == 65536 and r['memlock_needed_bytes'] == 32 << 20"
doctor "r['memory'] == [{'tenant': 't0', 'region': 0, 'regions': 2, 'kind': 'host', 'gpu': None, 'device': None, 'registered': 'no', 'reason': r['reason'], 'ring_bytes': 0, 'no_ring': None, 'self_test': None}]"
doctor "[(g['tenant'], g['region'], g['gpu'], g['rail']) for g in r['regions']] == [('t0', i, None, None) for i in range(2 * r['built'])]"
doctor "all(g['reason'] and (g['device'] or not devices) for g in r['regions'])"
doctor "r['tuning'] == dict(gid_index=None, mtu=None, pkey_index=0, traffic_class=0, service_level=0, timeout=16, retries=6)"
T=$("$CTL" doctor)
if grep -q '"built": *true' "$DIR/doctor"; then
    # Each region has its nearest device; a host without devices has none to show.
    named=$(python3 -c 'import json, sys; print(sum(r["device"] is not None for r in json.load(open(sys.argv[1]))["rdma"]["regions"]))' "$DIR/doctor")
    [[ $(grep -c "^  region [01] of t0, memory of the host: .*, which is not in use$" <<<"$T") = "$named" ]] || fail "table: $T"
    ! grep "any rail" <<<"$T" || fail "there is no rail: $T"
    grep -q "^RDMA: off by configuration (not requested: no peer's transport is auto or verbs)" <<<"$T" || fail "table: $T"
    [[ -n $(ls /sys/class/infiniband 2>/dev/null) ]] || grep -q "device: none" <<<"$T" || fail "table: $T"
else
    grep -q "^RDMA: not in this build" <<<"$T" || fail "table: $T"
fi
if grep -q '"memlock_exempt": *true' "$DIR/doctor"; then
    grep -q "locked memory: no limit applies (CAP_IPC_LOCK); registrations would take 33,554,432 bytes of the host's memory, on 1 device$" <<<"$T" || fail "table: $T"
else
    grep -q "RLIMIT_MEMLOCK is 65,536 bytes; registrations would take 33,554,432 bytes of the host's memory, on 1 device: too few" <<<"$T" || fail "table: $T"
fi
grep -qE "^  self-test: not run: RDMA is (off by configuration|not in this build)$" <<<"$T" || fail "table: $T"
ternd_stop

ternd_start "peers:
  - name: other
    address: 127.0.0.1:1
    tenants: [t0]
    transport: auto
insecure_peers: true" 16M 1
doctor "r['wanted'] is True and r['memlock_needed_bytes'] == (16 << 20) + 8192"
doctor "r['memlock_devices'] == 1"
grep -q "  self-test" <<<"$("$CTL" doctor)" || fail "no word of the self-test: $("$CTL" doctor)"
grep -q "keys: .*; no peer can read$" <<<"$("$CTL" doctor)" || fail "no word of keys: $("$CTL" doctor)"
! grep -q "off by configuration" <<<"$("$CTL" doctor)" || fail "a daemon that was asked for RDMA says that it was not"
ternd_stop
echo "doctor: ok"

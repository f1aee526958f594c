#!/usr/bin/env bash
# In one lab guest, after second_device: 8 RDMA devices, and two daemons with 8 regions on 8 GPUs of the stand-in. The
# guest's sysfs shows neither where these GPUs are nor where soft-RoCE's devices are, so another tree is mounted over
# it, where each GPU is below a switch with one device: the last device with the first GPU, and so on. The fetches of
# an engine on a GPU must use that device alone.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/two_devices.sh"
. "$here/verbs_lib.sh"
export LD_LIBRARY_PATH=$TERN_BUILD/tests/standin_memory LD_PRELOAD=$TERN_BUILD/tests/rdma_dmabuf.so
export STANDIN_CUDA_DEVICES=8
LISTEN=127.0.0.1 MEMORY=4M
pool=(--profile tiny --page-bytes 16384 --pool-pages 100 --prefixes 4 --chunks 10)
packets=4 # packets of a page, at 4096 bytes each

devices() {
    local i
    for i in 2 4 6; do
        ip link add "nic$i" type veth peer name "nic$((i + 1))" || return 1
    done
    for i in {2..7}; do
        ip link set "nic$i" mtu "$LAB_MTU" up && device "rxe$i" "nic$i" "10.81.$i.1" || return 1
    done
}

no_devices() {
    local i
    for i in {2..7}; do
        rdma link del "rxe$i" || return 1
    done
    for i in 2 4 6; do
        ip link del "nic$i" || return 1
    done
}

# below N KIND: the path of KIND below switch N
below() {
    echo "devices/pci0000:$1$1/0000:$1$1:00.0/0000:$1$1:01.0/0000:$1$1:02.0/$2"
}

# Mounts the tree: the guest's own entries, and the PCI devices.
sysfs() {
    local tree=$DIR/sys real=$DIR/real i
    mkdir "$tree" "$real" && mount -t sysfs sysfs "$real" || return 1
    mkdir -p "$tree"/{class/infiniband,bus/pci/devices,devices} || return 1
    ln -s "$real"/class/* "$tree/class/" 2>/dev/null # except entries that exist
    ln -s "$real/devices/system" "$tree/devices/"
    for i in {0..7}; do
        mkdir -p "$tree/$(below "$i" gpu)" "$tree/$(below "$i" nic)" "$tree/class/infiniband/rxe$((7 - i))" || return 1
        ln -s "/sys/$(below "$i" gpu)" "$tree/bus/pci/devices/$(printf '0000:%02x:00.0' $((0xaa + i)))" || return 1
        ln -s "$real/class/infiniband/rxe$((7 - i))"/* "$tree/class/infiniband/rxe$((7 - i))/" &&
            ln -s "/sys/$(below "$i" nic)" "$tree/class/infiniband/rxe$((7 - i))/device" || return 1
    done
    mount --bind "$tree" /sys
}

no_sysfs() {
    umount /sys && umount "$DIR/real"
}

all_ready() { # NODE
    ctl "$1" peers --wide >"$DIR/peers" && [[ $(grep -c '^ *path .* ready ' "$DIR/peers") == 8 ]]
}

# counters: sets `had` to the packets that each device has received
counters() {
    local i
    for i in {0..7}; do
        read -r "had[$i]" <"/sys/class/infiniband/rxe$i/ports/1/hw_counters/rcvd_pkts"
    done
}

# came REGION: the fetches of its engine arrive over its device alone
came() {
    local device=$((7 - $1)) before pages i n
    half source commit "${pool[@]}" --seed "$1" --device "${gpu[$1]}" >/dev/null || fail "commit"
    counters
    before=("${had[@]}")
    half dest fetch "${pool[@]}" --seed "$1" --device "${gpu[$1]}" --peer source --tries 20 >"$DIR/fetch" ||
        fail "fetch: $(cat "$DIR/fetch")"
    counters
    pages=$(sed -n 's/^fetched: .* pages=\([0-9]*\) wrong_bytes=0 .*/\1/p' "$DIR/fetch")
    [[ ${pages:-0} -gt 0 ]] || fail "nothing came: $(cat "$DIR/fetch")"
    for i in {0..7}; do
        n=$((had[i] - before[i]))
        ((i == device ? n >= pages * packets : n == 0)) || fail "$n packets over rxe$i, of $pages pages of region $1"
    done
    echo "region $1: $pages pages, all over rxe$device"
}

for i in {0..7}; do
    gpu+=("GPU-7374616e-6469-6e00-0000-00000000000$i")
done
names=$(IFS=+ && echo "${gpu[*]}")
devices || fail "no 8 devices"
sysfs || fail "no sysfs"
export GPU=$names TENANT=regions=8
daemon source 7701 dest 127.0.0.1:7702
daemon dest 7702 source 127.0.0.1:7701
ctl dest doctor >"$DIR/doctor" || fail "doctor"
wait_for 120 "8 paths" all_ready dest
[[ $(grep -cE "^  self-test of default, region [0-7], on GPU-.*, with rxe[0-7]: passed " "$DIR/doctor") == 64 ]] || fail "$(cat "$DIR/doctor")"
sed -nE 's/.*event=rdma_self_test .* pairs=([0-9]+) .* us=([0-9]+)$/\1 \2/p' "$DIR/dest/log" |
    awk '{ n += $1; us += $2 } END { print "self-tests: " n " pairs in " int(us / 1000) " ms" }'
for region in {0..7}; do
    grep -E "^  region $region of default, .*: rxe$((7 - region)) \(same switch\)$" "$DIR/doctor" || fail "$(cat "$DIR/doctor")"
    came "$region"
done
all_by_verbs dest
stop_daemons
no_sysfs && no_devices || fail "the devices do not go"
echo "nics: ok"

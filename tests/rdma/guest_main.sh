#!/usr/bin/env bash
# Runs in a lab guest, in the host's root: makes the network and rxe0, then the command of this boot, and leaves its
# output and exit status in the run's folder, which lab.sh watches. Called by guest_init.sh. A command starts only
# once rxe0 is up; an earlier failure is the lab's own and is reported on the console.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
here=/lab/$LAB_GUEST.$LAB_BOOT
peer_wait_s=300

die() {
    echo "lab guest $LAB_GUEST: $*"
    exit 1
}

# lab_signal NAME, lab_wait NAME [SECONDS]: one guest signals the other, or itself, that it has
# reached a point. The signal `failed` ends every wait.
lab_signal() { : >"$LAB_SHARE/$1"; }
lab_wait() {
    local until=$((SECONDS + ${2:-200})) idle
    exec {idle}<> <(:) # a wait that starts no process: the other guest may need the processor
    while [[ ! -e $LAB_SHARE/$1 ]]; do
        if [[ -e $LAB_SHARE/failed ]]; then
            echo "lab_wait: the other side failed before $1" >&2
            return 1
        fi
        if ((SECONDS >= until)); then
            echo "lab_wait: $1 did not come in ${2:-200} s" >&2
            return 1
        fi
        read -r -t 0.1 -u "$idle" _
    done
    exec {idle}>&-
}

network() {
    ip link set lo up
    case $LAB_GUEST in
    one)
        ip link add veth0 type veth peer name veth1 || return 1
        ip link set veth1 mtu "$LAB_MTU" up
        export LAB_IF=veth0 LAB_IP=10.77.0.1 LAB_PEER_IP=10.77.0.1
        ;;
    a) export LAB_IF=eth0 LAB_IP=10.77.0.1 LAB_PEER_IP=10.77.0.2 ;;
    b) export LAB_IF=eth0 LAB_IP=10.77.0.2 LAB_PEER_IP=10.77.0.1 ;;
    esac
    ip link set "$LAB_IF" mtu "$LAB_MTU" up && ip addr add "$LAB_IP/24" dev "$LAB_IF"
}

# The RoCEv2 entry of the IPv4 address appears a moment after the device.
find_gid() {
    local gids=/sys/class/infiniband/rxe0/ports/1/gids want gid i
    want=$(printf '0000:0000:0000:0000:0000:ffff:0a4d:%04x' "${LAB_IP##*.}")
    for _ in {1..300}; do
        for i in 0 1 2 3; do
            if { read -r gid <$gids/$i; } 2>/dev/null && [[ $gid == "$want" ]]; then
                export LAB_GID=$i
                return 0
            fi
        done
        sleep 0.1
    done
    return 1
}

. "$here/env" || die "no environment"
export LAB_SHARE=/lab/share LAB_DEV=rxe0
export -f lab_signal lab_wait
network || die "no network device"
rdma link add rxe0 type rxe netdev "$LAB_IF" || die "no rxe0"
find_gid || die "rxe0 has no GID for $LAB_IP"
if [[ $LAB_GUEST != one && $LAB_BOOT -eq 1 ]]; then
    other=b
    [[ $LAB_GUEST == b ]] && other=a
    lab_signal "up.$LAB_GUEST"
    lab_wait "up.$other" "$peer_wait_s" || die "the other guest is not there"
fi
cd "$LAB_PWD" || die "no folder $LAB_PWD"
: >"$here/up"

status=0
bash "$here/command" >>"$here/out" 2>&1 </dev/null || status=$?
echo "$status" >"$here/rc.new"
mv "$here/rc.new" "$here/rc"

# Sourced in the guest of `lab.sh one`: a second device, rxe1 on veth1, whose packets to and from
# rxe0 really go through the cable between veth0 and veth1. Both addresses belong to this machine,
# so the kernel would keep the packets inside: by the rules below only received packets look up the
# table of local addresses, sent ones do not. netem on veth0 and veth1 then delays and loses packets
# at no cost to the one processor: reads are under way while programs run, as between two hosts.
#   second_device            only makes rxe1: each device talks to itself
#   two_devices              makes the cable, and rxe1 if it is missing; sets LAB_IP2
#   two_devices_netem ARG... for packets in both directions, e.g. `rate 100mbit delay 2ms`; without ARG: at full speed
# For more of them: device, through_cable and netem.
second_device() {
    export LAB_IP2=10.78.0.1
    device rxe1 veth1 "$LAB_IP2"
}

# device NAME NETDEV ADDRESS
device() {
    local gid
    [[ ! -e /sys/class/infiniband/$1 ]] || return 0
    ip addr add "$3/24" dev "$2" && rdma link add "$1" type rxe netdev "$2" || return 1
    gid=$(printf 'ffff:%02x%02x:%02x%02x' ${3//./ })
    for _ in {1..300}; do
        grep -q "$gid" "/sys/class/infiniband/$1/ports/1/gids/1" && return
        sleep 0.1
    done
    echo "device: $1 has no GID for $3"
    return 1
}

two_devices() {
    second_device || return 1
    echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
    echo 1 >/proc/sys/net/ipv4/conf/all/accept_local
    ip rule add pref 100 lookup local || return 1
    through_cable 1 veth0 "$LAB_IP" veth1 "$LAB_IP2" && ip rule del pref 0
}

# through_cable N NETDEV ADDRESS NETDEV ADDRESS: N and N+1 number its rules and tables; use each once
through_cable() {
    one_way "$1" "${@:2}" && one_way $(($1 + 1)) "$4" "$5" "$2" "$3"
}

one_way() {
    echo 0 >/proc/sys/net/ipv4/conf/"$2"/rp_filter
    echo 1 >/proc/sys/net/ipv4/conf/"$2"/accept_local
    ip rule add pref "$1" iif "$2" lookup local && ip rule add pref $(($1 + 10)) to "$5" lookup $(($1 + 10)) || return 1
    to_peer "$@"
}

# Restores what the kernel drops when a device is set down.
to_peer() {
    ip route replace "$5" dev "$2" src "$3" table $(($1 + 10)) &&
        ip neigh replace "$5" lladdr "$(cat /sys/class/net/"$4"/address)" dev "$2"
}

two_devices_netem() {
    netem "veth0 veth1" "$@"
}

# netem NETDEVS ARG...: queued packets are lost, as when a cable is pulled
netem() {
    local net
    for net in $1; do
        [[ ! $(tc qdisc show dev "$net" root) =~ netem ]] || echo "qdisc del dev $net root"
        [[ $# -eq 1 ]] || echo "qdisc add dev $net root netem limit 20000 ${*:2}"
    done | tc -batch -
}

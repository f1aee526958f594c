# Sourced in the guest of `lab.sh one`: a second device, rxe1 on veth1, whose packets to and from rxe0 really go through
# the cable between veth0 and veth1. Both addresses are this machine's, so the kernel would keep the packets inside:
# the rules below take the table of local addresses from what is sent, and leave it to what is received. netem on
# veth0 and veth1 then delays and loses packets, which costs the one processor nothing: reads are under way while
# programs run, as between two hosts.
#   second_device            only makes rxe1: each device talks to itself
#   two_devices              makes rxe1, if it is not there, and the cable; sets LAB_IP2
#   two_devices_netem ARG... for packets both ways, e.g. `rate 100mbit delay 2ms`; without ARG: as fast as it goes
second_device() {
    export LAB_IP2=10.78.0.1
    [[ ! -e /sys/class/infiniband/rxe1 ]] || return 0
    ip addr add "$LAB_IP2/24" dev veth1 && rdma link add rxe1 type rxe netdev veth1 || return 1
    for _ in {1..50}; do
        grep -q ffff:0a4e:0001 /sys/class/infiniband/rxe1/ports/1/gids/1 && return
        sleep 0.1
    done
    echo "second_device: rxe1 has no GID for $LAB_IP2"
    return 1
}

two_devices() {
    local net mac0 mac1
    second_device || return 1
    for net in all veth0 veth1; do
        echo 0 >/proc/sys/net/ipv4/conf/$net/rp_filter
        echo 1 >/proc/sys/net/ipv4/conf/$net/accept_local
    done
    ip rule add pref 1 iif veth0 lookup local && ip rule add pref 2 iif veth1 lookup local || return 1
    ip rule add pref 10 to "$LAB_IP2" lookup 10 && ip rule add pref 11 to "$LAB_IP" lookup 11 || return 1
    ip rule add pref 100 lookup local && ip rule del pref 0 || return 1
    ip route add "$LAB_IP2" dev veth0 src "$LAB_IP" table 10 && ip route add "$LAB_IP" dev veth1 src "$LAB_IP2" table 11 || return 1
    mac0=$(cat /sys/class/net/veth0/address) mac1=$(cat /sys/class/net/veth1/address)
    ip neigh replace "$LAB_IP2" lladdr "$mac1" dev veth0 && ip neigh replace "$LAB_IP" lladdr "$mac0" dev veth1
}

two_devices_netem() {
    local net
    for net in veth0 veth1; do
        tc qdisc del dev $net root 2>/dev/null
        [[ $# -eq 0 ]] || tc qdisc add dev $net root netem limit 20000 "$@" || return 1
    done
}

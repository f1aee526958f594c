#!/usr/bin/env bash
# The RDMA lab: runs a command in one virtual machine with a soft-RoCE device, or two commands in two that are joined by a
# cable. Called by the tests of label rdma, and by hand. It needs no RDMA card, no KVM, and no InfiniBand in the host.
#
#   lab.sh [OPTION...] one CMD              a guest with rxe0 on a veth
#   lab.sh [OPTION...] pair CMD_A CMD_B     guests a and b, rxe0 on virtio-net in each; commands start when both are up
#   lab.sh build                            only fetch the kernel and make the initramfs (cached in the build tree)
#
#   --timeout S          seconds a command may take once its guest is up (default 300)
#   --mem MIB            memory of a guest (default 1024, at most 1536); one virtual CPU each
#   --mtu N              of the Ethernet devices (default 4200: RoCE sends 4096 bytes a packet; 1500 makes it 1024)
#   --kill GUEST:TEXT    when either guest prints a line that contains TEXT, GUEST's QEMU is killed (power lost). It is an
#                        error if that never happens. A killed guest's status counts for nothing.
#   --restart GUEST:CMD  boot the killed guest again (its disk is new) and run CMD there; the cable is plugged in again
#   --keep               leave the run's folder behind (console and output of each boot, the share); so after a failure
#
# What a command finds in the guest:
#   - It is a bash command line, run as root, in the folder that lab.sh was called in. The guest sees this machine's whole
#     root, so the very binaries of the build tree, read-only; writes go to a tmpfs over it and are lost at the end.
#     io_uring, unix sockets, memfd and /dev/shm work. TERN_* and LAB_* of the caller's environment are passed on.
#   - LAB_GUEST (one, a, b), LAB_BOOT (1, after a restart 2), LAB_IF, LAB_IP, LAB_PEER_IP (in one guest its own address),
#     LAB_DEV=rxe0, LAB_GID (index of the IPv4 RoCEv2 GID).
#   - LAB_SHARE, a folder that both guests and this machine see. Files there outlast the guest (with --keep, or
#     LAB_RESULTS=FOLDER, into which it is copied at the end). No mmap for writing there: put pages and sockets in /tmp.
#   - The functions lab_signal NAME and lab_wait NAME [SECONDS], which work across guests.
#   - Packet loss: tc qdisc add dev $LAB_IF root netem loss 5% (in a pair: in one guest rxe's packets don't leave it); a
#     host that falls silent and stays alive: loss 100%. Without either the cable of a pair loses nothing.
#   - rxe takes retry_cnt 7 for "for ever", as rnr_retry 7: a QP to a dead host never completes with it (seen: 60 s without).
#     With 3 it ends in RETRY_EXC_ERR (12) within seconds. Its counters: /sys/class/infiniband/rxe0/ports/1/hw_counters/.
#
# Examples: a unit test; two daemons in one guest; and, with scripts of yours, a source that dies in mid-transfer and comes
# back:
#   lab.sh one '"$TERN_BUILD"/tests/test_xfer_verbs'
#   lab.sh one 'bash tests/rdma/verbs_replay.sh'
#   lab.sh --kill b:moving --restart b:'bash source.sh' pair 'bash destination.sh' 'bash source.sh'
#
# Output: one guest's lines unchanged, a pair's with `a| ` or `b| ` in front, as they arrive; the lab's own lines go to
# standard error and begin with `lab:`. Exit status: the command's (of a pair the first that is not 0); 124 after a timeout,
# 125 if the lab itself failed, 77 if the guests cannot be made here (with the reason in the last line). No QEMU outlives
# this script, however it ends. Time in a guest is emulated: it shows correctness, not speed.
set -uo pipefail
lab_here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
lab_pwd=$PWD
cache=${TERN_BUILD:-$lab_here/../../build}
mkdir -p "$cache" || exit 125
cache=$(cd "$cache" && pwd)
export TERN_BUILD=$cache TERN_BIN=${TERN_BIN:-$cache/bin} TERN_SOURCE=${TERN_SOURCE:-$(cd "$lab_here/../.." && pwd)}
cache=$cache/rdma-lab

boot_s=300     # from QEMU's start until the guest is ready for its command
command_s=300  # --timeout
poweroff_s=60  # from the command's end until QEMU has ended
mem_max_mib=1536
mem_mib=1024
mtu=4200
keep=0
kill_guest='' kill_text='' restart_guest='' restart_command=''

say() { echo "lab: $*" >&2; }

usage() {
    sed -n '/^#   lab.sh/p; /^#   --/p' "${BASH_SOURCE[0]}" | sed 's/^# //' >&2
    exit 2
}

. "$lab_here/lab_build.sh"

# One guest's state: boot -> run -> off -> gone; killed from any. `gone` and `killed` have no QEMU.
declare -A state=() pid=() boot=() folder=() since=() out=() part=()
guests=() result=0 run=''

now_ms() { now=$((${EPOCHREALTIME/[.,]/} / 1000)); }

fail() { # STATUS TEXT: the first failure is the run's
    say "$2"
    [[ $result -eq 0 ]] && result=$1
}

cleanup() {
    local g
    for g in "${!pid[@]}"; do
        [[ ${state[$g]} == gone || ${state[$g]} == killed ]] || kill -KILL "${pid[$g]}" 2>/dev/null
    done
    wait 2>/dev/null
    [[ -n $run ]] || return
    if [[ -n ${LAB_RESULTS:-} ]]; then
        mkdir -p "$LAB_RESULTS" && cp -r "$run/share/." "$LAB_RESULTS/"
    fi
    cd "$lab_pwd" || true
    if [[ $keep -eq 1 ]]; then
        mv "$run" "${run/run./kept.}"
        say "the run's folder, for an hour: ${run/run./kept.}"
    else
        rm -rf "$run"
    fi
}

# Removes folders of runs whose lab was killed before it could clean up, and old kept ones.
sweep() {
    local old
    find "$cache" -maxdepth 1 -name 'kept.*' -mmin +60 -exec rm -rf {} +
    for old in "$cache"/run.*; do
        [[ -d $old && ! -d /proc/${old##*.} ]] && rm -rf "$old"
    done
}

write_environment() { # FILE
    local name
    {
        for name in "${!TERN_@}" "${!LAB_@}"; do
            printf 'export %s=%q\n' "$name" "${!name}"
        done
        printf 'export LAB_PWD=%q LAB_MTU=%q\n' "$lab_pwd" "$mtu"
    } >"$1"
}

# The guest to be killed has the connecting end: the other end listens on, and accepts again.
cable() { # GUEST: prints QEMU's arguments
    local role=server=on number=1 server=a
    [[ $kill_guest == a ]] && server=b
    [[ $1 == "$server" ]] || role=server=off
    [[ $1 == a ]] || number=2
    echo "-netdev stream,id=cable,$role,addr.type=unix,addr.path=cable" \
        "-device virtio-net-pci,netdev=cable,romfile=,mac=52:54:00:77:00:0$number,host_mtu=$mtu"
}

start() { # GUEST COMMAND
    local g=$1 dir arguments=()
    boot[$g]=$((${boot[$g]:-0} + 1))
    dir=$run/$g.${boot[$g]}
    mkdir -p "$dir"
    printf '%s\n' "$2" >"$dir/command"
    write_environment "$dir/env"
    : >"$dir/out"
    exec {out[$g]}<"$dir/out"
    folder[$g]=$dir part[$g]=''
    [[ $g == one ]] || read -r -a arguments < <(cable "$g")
    # The kernel kills QEMU when this shell dies, even by SIGKILL. no_timer_check: on a host that stalls while the
    # guest's kernel counts ticks, that kernel would take its timer for broken and panic. clocksource: such a host also
    # makes the kernel measure the rate of its TSC wrong, and its clock ran 20 times too fast; acpi_pm has a fixed rate.
    setpriv --pdeathsig KILL qemu-system-x86_64 -name "lab-$g" -nodefaults -display none -no-reboot -no-user-config \
        -machine pc,accel=tcg,usb=off,vmport=off -cpu max -smp 1 -m "$mem_mib" \
        -kernel "$cache/kernel/vmlinuz" -initrd "$cache/initrd" \
        -append "console=ttyS0 quiet panic=-1 oops=panic mitigations=off nokaslr cryptomgr.notests random.trust_cpu=on clocksource=acpi_pm no_timer_check LAB_GUEST=$g LAB_BOOT=${boot[$g]}" \
        -chardev file,id=console,path="$dir/console.log" -serial chardev:console \
        -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
        -virtfs local,path="$run",mount_tag=lab,security_model=none,multidevs=remap \
        "${arguments[@]}" >"$dir/qemu.log" 2>&1 </dev/null &
    pid[$g]=$!
    echo "$!" >"$dir/pid"
    state[$g]=boot
    now_ms
    since[$g]=$now
}

# The listening end must exist before the other one connects.
wait_for_cable() {
    local i
    for ((i = 0; i < 100; i++)); do
        [[ -S $run/cable ]] && return
        nap
    done
    say "QEMU did not make its end of the cable: $(cat "$run"/*/qemu.log)"
    exit 125
}

power_off() { # GUEST NEXT-STATE
    kill -KILL "${pid[$1]}" 2>/dev/null
    wait "${pid[$1]}" 2>/dev/null
    state[$1]=$2
}

# A guest whose command has ended is not killed: the case that the test wants did not happen.
pull_plug() {
    local g=$kill_guest text=$kill_text
    kill_text=''
    if [[ ${state[$g]} != boot && ${state[$g]} != run ]]; then
        fail 125 "$g: \"$text\" came when its command had ended: not killed"
        return
    fi
    say "$g: killed at \"$text\""
    power_off "$g" killed
    last_output "$g"
    [[ -n $restart_guest ]] || return
    say "$g: starting again"
    start "$g" "$restart_command"
}

line() { # GUEST LINE
    if [[ $1 == one ]]; then printf '%s\n' "$2"; else printf '%s| %s\n' "$1" "$2"; fi
    [[ -n $kill_text && $2 == *"$kill_text"* ]] && pull_plug
}

read_output() { # GUEST
    local text
    while IFS= read -r -u "${out[$1]}" text; do
        text=${part[$1]}$text
        part[$1]=''
        line "$1" "$text"
    done
    part[$1]+=$text
}

last_output() { # GUEST: also a line without an end
    read_output "$1"
    [[ -z ${part[$1]} ]] || line "$1" "${part[$1]}"
    part[$1]=''
}

tell_console() { # GUEST
    say "$1: the end of its console:"
    tail -n 25 "${folder[$1]}/console.log" "${folder[$1]}/qemu.log" >&2
    keep=1
}

# late GUEST SECONDS WHAT: if its state has lasted longer, powers the guest off and returns true
late() {
    ((now - since[$1] <= $2 * 1000)) && return 1
    fail 124 "$1: timeout: $3 took more than $2 s"
    tell_console "$1"
    power_off "$1" gone
}

enter() { # GUEST STATE TEXT
    say "$1: $3 after $(((now - since[$1]) / 1000)).$((((now - since[$1]) % 1000) / 100)) s"
    state[$1]=$2 since[$1]=$now
}

command_ended() { # GUEST
    local status
    status=$(<"${folder[$1]}/rc")
    enter "$1" off "exit status $status"
    [[ $status -eq 0 || $result -ne 0 ]] || result=$status
    last_output "$1"
}

watch_guest() { # GUEST
    local g=$1 alive=1
    kill -0 "${pid[$g]}" 2>/dev/null || alive=0
    read_output "$g"
    [[ ${state[$g]} == boot && -e ${folder[$g]}/up ]] && enter "$g" run "up"
    [[ ${state[$g]} == run && -e ${folder[$g]}/rc ]] && command_ended "$g"
    if [[ $alive -eq 0 && ${state[$g]} != killed ]]; then
        if [[ ${state[$g]} != off ]]; then
            fail 125 "$g: the machine ended before its command did"
            tell_console "$g"
        fi
        state[$g]=gone
    fi
    case ${state[$g]} in
    boot) late "$g" "$boot_s" "the boot" ;;
    run) late "$g" "$command_s" "the command" ;;
    off) late "$g" "$poweroff_s" "powering off" ;;
    esac
}

# A tenth of a second, without a process.
exec {idle}<> <(:)
nap() { read -r -t 0.1 -u "$idle" _; }

watch_all() {
    local g busy=1
    while [[ $busy -eq 1 ]]; do
        nap
        busy=0
        now_ms
        for g in "${guests[@]}"; do
            [[ ${state[$g]} == gone || ${state[$g]} == killed ]] && continue
            watch_guest "$g"
            busy=1
        done
    done
    if [[ -n $kill_text ]]; then
        fail 125 "no guest printed \"$kill_text\": $kill_guest was not killed"
    fi
    for g in "${guests[@]}"; do
        if grep -qE 'Oops|BUG:|WARNING:|Kernel panic' "${folder[$g]}/console.log"; then
            say "$g: its kernel complained: $(grep -m 1 -E 'Oops|BUG:|WARNING:|Kernel panic' "${folder[$g]}/console.log")"
        fi
    done
}

split() { # OPTION GUEST:VALUE: sets `guest` and `value`
    guest=${2%%:*} value=${2#*:}
    if [[ $2 != *:* || -z $value || ($guest != a && $guest != b && $guest != one) ]]; then
        echo "lab.sh: $1 wants GUEST:TEXT, GUEST one of a, b, one" >&2
        usage
    fi
}

while [[ $# -gt 0 && $1 == --* ]]; do
    [[ $1 == --keep || $# -ge 2 ]] || usage
    case $1 in
    --keep) keep=1 && set -- x "$@" ;;
    --timeout) command_s=$2 ;;
    --mem) mem_mib=$2 ;;
    --mtu) mtu=$2 ;;
    --kill) split "$1" "$2" && kill_guest=$guest kill_text=$value ;;
    --restart) split "$1" "$2" && restart_guest=$guest restart_command=$value ;;
    *) usage ;;
    esac
    shift 2
done
if [[ ! "$command_s $mem_mib $mtu" =~ ^[0-9]+\ [0-9]+\ [0-9]+$ || $mem_mib -gt $mem_max_mib ]]; then usage; fi
[[ -z $restart_guest || $restart_guest == "$kill_guest" ]] || usage
case ${1:-}:$# in
build:1) guests=() ;;
one:2) guests=(one) ;;
pair:3) guests=(a b) ;;
*) usage ;;
esac
for g in "$kill_guest"; do
    [[ -z $g || " ${guests[*]} " == *" $g "* ]] || usage
done

lab_build
[[ $1 == build ]] && say "kernel $(<"$cache/kernel/version"), initramfs $(stat -c %s "$cache/initrd") bytes" && exit 0

sweep
run=$cache/run.$$
rm -rf "$run"
mkdir -p "$run/share" || exit 125
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
cp "$lab_here/guest_main.sh" "$run/"
cd "$run" || exit 125 # QEMU's socket has a short, relative name
case $1 in
one) start one "$2" ;;
pair)
    if [[ $kill_guest == a ]]; then
        start b "$3" && wait_for_cable && start a "$2"
    else
        start a "$2" && wait_for_cable && start b "$3"
    fi
    ;;
esac
watch_all
exit "$result"

# Sourced by the scripts that run in a lab guest: daemons whose pages go by RDMA, and their figures.
# TRANSPORT, MEMORY, LEVEL: settings of the daemons; GPU: the UUID of the GPU that their memory lies
# on, none for the host's; TENANT: more settings of the tenant, KEY=VALUE,...; TLS: the folder of
# deploy/make-certs.sh's certificates, else in the clear; LISTEN: the address (LAB_IP).
#   daemon NODE PORT PEER PEER-ADDR:PORT [FLAG...]   starts a ternd in $DIR/NODE and waits until it is ready
#   half NODE COMMAND [OPTION...]                    rdma_half on its sockets
#   told NODE KEY...                                 a figure of `ternctl status`, e.g. `told decode data verbs pages_in`
set -u
DIR=${DIR:-$(mktemp -d /tmp/verbs-XXXXXX)}
TRANSPORT=${TRANSPORT:-verbs}
declare -A PIDS

# A process costs an emulated machine a tenth of a second, and Python half a second: waits start none.
exec {idle}<> <(:)
nap() { read -r -t 0.05 -u "$idle" _; }

fail() {
    echo "FAILED: $*"
    lab_signal failed
    for log in "$DIR"/*/log; do
        echo "-- $log"
        tail -n 25 "$log"
    done
    exit 1
}

ctl() { # NODE COMMAND...
    TERN_ADMIN_SOCKET=$DIR/$1/admin.sock "$TERN_BIN/ternctl" "${@:2}"
}

wait_for() { # SECONDS WHAT COMMAND...
    local until=$((SECONDS + $1)) what=$2
    shift 2
    until "$@"; do
        ((SECONDS < until)) || fail "waited in vain for $what"
        nap
    done
}

logged() { # NODE TEXT
    [[ $(<"$DIR/$1/log") == *"$2"* ]]
}

# Tables as large as these daemons need: most of the time of a start goes into touching memory.
limits=(--limits.sessions=256 --limits.send_buffers=64)

daemon() {
    local node=$1 port=$2 peer=$3 at=$4 how=(--insecure_peers)
    shift 4
    mkdir -p "$DIR/$node" && : >>"$DIR/$node/log"
    [[ -n ${TLS:-} ]] && how=(--tls.ca "$TLS/ca.pem" --tls.cert "$TLS/$node.pem" --tls.key "$TLS/$node.key")
    "$TERN_BIN/ternd" --node "$node" --admin.socket "$DIR/$node/admin.sock" --huge_pages=false --workers 1 \
        --tenant "name=default,socket=$DIR/$node/default.sock,memory=${MEMORY:-64M}${GPU:+,devices=$GPU,device_memory=true}${TENANT:+,$TENANT}" \
        --listen "${LISTEN:-$LAB_IP}:$port" "${how[@]}" --peer "name=$peer,address=$at,tenants=default,transport=$TRANSPORT" \
        --log_level "${LEVEL:-info}" "${limits[@]}" "$@" >>"$DIR/$node/log" 2>&1 &
    PIDS[$node]=$!
    wait_for 120 "$node" logged "$node" "event=ready node=$node pid=${PIDS[$node]} "
}

# half NODE COMMAND [OPTION...]: rdma_half on that node's daemon
half() {
    "$TERN_BUILD/tests/rdma_half" "$2" "$DIR/$1/default.sock" "$DIR/$1/admin.sock" "${@:3}"
}

told() {
    local json key
    json=$(ctl "$1" status --json) || return 1
    shift
    for key in "${@:1:$#-1}"; do
        [[ $json == *"\"$key\": {"* ]] || return 1
        json=${json#*"\"$key\": {"}
    done
    figure "$json" "${@: -1}"
}

figure() { # JSON KEY: the first number, or word, of that name
    [[ $1 =~ \"$2\":\ *\"?([^],\"}[:space:]]*) ]] && echo "${BASH_REMATCH[1]}"
}

all_by_verbs() { # NODE: every page that arrived there came by RDMA
    local by_verbs all
    by_verbs=$(told "$1" data verbs pages_in) all=$(told "$1" data pages_in)
    echo "pages by RDMA: $by_verbs of $all"
    [[ $by_verbs -gt 0 && $by_verbs == "$all" ]] || fail "pages did not move by verbs"
}

transport() { # NODE: of its one peer
    figure "$(ctl "$1" peers --json)" transport
}

goes_by() { # NODE TRANSPORT
    [[ $(transport "$1") == "$2" ]]
}

figures() { # FILE KEY...: of a JSON file
    local json key line=
    json=$(<"$1")
    for key in "${@:2}"; do
        line+=" $key=$(figure "$json" "$key")"
    done
    echo "${line# }"
}

stop_daemons() {
    local node
    for node in "${!PIDS[@]}"; do
        kill "${PIDS[$node]}" 2>/dev/null
    done
    for node in "${!PIDS[@]}"; do
        wait "${PIDS[$node]}" || fail "$node ended with status $?"
    done
}

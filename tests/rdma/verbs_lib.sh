# Sourced by the scripts that run in a lab guest: daemons whose pages go by RDMA, and what they say of themselves.
# TRANSPORT, MEMORY, LEVEL: of the daemons; GPU: the UUID of the GPU that their memory lies on, none for the host's;
# TENANT: more settings of the tenant, KEY=VALUE,...; TLS: the folder of deploy/make-certs.sh's certificates, else in the clear;
# LISTEN: the address (LAB_IP); PUSH=0: the daemon reads its pages; WIDE_KEYS=1: it may be read.
#   daemon NODE PORT PEER PEER-ADDR:PORT [FLAG...]   starts a ternd in $DIR/NODE and waits until it is ready
#   half NODE COMMAND [OPTION...]                    rdma_half on its sockets
#   told NODE KEY...                                 a figure of `ternctl status`, e.g. `told decode data verbs pages_in`
set -u
DIR=${DIR:-$(mktemp -d /tmp/verbs-XXXXXX)}
TRANSPORT=${TRANSPORT:-verbs}
declare -A PIDS

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
        sleep 0.1
    done
}

daemon() {
    local node=$1 port=$2 peer=$3 at=$4 how=(--insecure-peers) push=
    shift 4
    mkdir -p "$DIR/$node"
    [[ -n ${TLS:-} ]] && how=(--tls-ca "$TLS/ca.pem" --tls-cert "$TLS/$node.pem" --tls-key "$TLS/$node.key")
    [[ ${PUSH:-1} == 1 ]] || push=,push=false
    [[ ${WIDE_KEYS:-0} == 1 ]] && how+=(--rdma-wide-keys)
    "$TERN_BIN/ternd" --node "$node" --admin-socket "$DIR/$node/admin.sock" --huge-pages=false --workers 1 \
        --tenant "name=default,socket=$DIR/$node/default.sock,memory=${MEMORY:-64M}${GPU:+,devices=$GPU,device_memory=true}${TENANT:+,$TENANT}" \
        --listen "${LISTEN:-$LAB_IP}:$port" "${how[@]}" --peer "name=$peer,address=$at,tenants=default,transport=$TRANSPORT$push" \
        --log-level "${LEVEL:-info}" "$@" >>"$DIR/$node/log" 2>&1 &
    PIDS[$node]=$!
    wait_for 120 "$node" grep -q event=ready "$DIR/$node/log"
}

# half NODE COMMAND [OPTION...]: rdma_half on that node's daemon
half() {
    "$TERN_BUILD/tests/rdma_half" "$2" "$DIR/$1/default.sock" "$DIR/$1/admin.sock" "${@:3}"
}

told() {
    local node=$1 path
    shift
    path=$(printf '[%s]' "${@/#/\"}" | sed 's/\]/"]/g')
    ctl "$node" status --json | python3 -c "import json, sys; print(json.load(sys.stdin)$path)"
}

all_by_verbs() { # NODE: every page that came to it came by RDMA
    local by_verbs
    by_verbs=$(told "$1" data verbs pages_in)
    echo "pages by RDMA: $by_verbs of $(told "$1" data pages_in)"
    [[ $by_verbs -gt 0 && $by_verbs == $(told "$1" data pages_in) ]] || fail "pages did not move by verbs"
}

transport() { # NODE: of its one peer
    ctl "$1" peers --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["peers"][0]["transport"])'
}

goes_by() { # NODE TRANSPORT
    [[ $(transport "$1") == "$2" ]]
}

figures() { # FILE KEY...: of a JSON file
    python3 - "$@" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
print(*(f"{k}={d[k]}" for k in sys.argv[2:]))
PY
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

#!/usr/bin/env bash
# Makes certificates for daemons. It makes a CA in DIR (ca.pem, ca.key), unless there is one, and then NODE.pem and
# NODE.key for each NODE, which is the `node` of a daemon. Keep ca.key away from the hosts: who has it can be any node.
#
#   deploy/make-certs.sh DIR NODE...
#
# DAYS says how long a node's certificate is valid (365). SAN and EKU replace what it says of names and purposes; tests
# make wrong certificates with them.
set -euo pipefail
if [[ $# -lt 2 ]]; then
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
dir=$1
shift
umask 077
mkdir -p "$dir"
ec=(-algorithm EC -pkeyopt ec_paramgen_curve:P-256)

if [[ ! -e $dir/ca.pem ]]; then
    openssl genpkey "${ec[@]}" -out "$dir/ca.key" 2>/dev/null
    openssl req -x509 -new -key "$dir/ca.key" -sha256 -days 3650 -subj "/CN=tern CA" \
        -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign" -out "$dir/ca.pem"
fi
for node in "$@"; do
    if [[ ! $node =~ ^[A-Za-z0-9._-]{1,63}$ ]]; then
        echo "make-certs: $node: the name of a node has 1 to 63 characters of a-z A-Z 0-9 - _ ." >&2
        exit 1
    fi
    openssl genpkey "${ec[@]}" -out "$dir/$node.key" 2>/dev/null
    openssl req -new -key "$dir/$node.key" -subj "/CN=$node" |
        openssl x509 -req -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -sha256 -days "${DAYS:-365}" \
            -set_serial "0x$(openssl rand -hex 16)" -out "$dir/$node.pem" -extfile <(
                echo "${SAN-subjectAltName=DNS:$node}"
                echo "basicConstraints=critical,CA:FALSE"
                echo "keyUsage=critical,digitalSignature"
                echo "extendedKeyUsage=${EKU:-serverAuth,clientAuth}"
            ) 2>/dev/null
done

#!/usr/bin/env bash
# Runs one perftest program at 64 KiB over rxe0 of a guest, or its client against the other guest, and prints the
# figures as `perftest ib_read_bw one bytes=65536 iterations=N mb_per_s=X`. Started by test_lab.sh through lab.sh.
#   perftest.sh one PROGRAM...        server and client in this guest
#   perftest.sh server PROGRAM...     for each program, wait for the other guest's client
#   perftest.sh client PROGRAM...
# A run passes if perftest exits with 0 and printed a figure.
set -u
role=$1
shift
bytes=65536 iterations=${LAB_ITERATIONS:-200}
run_s=180
port=18515
[[ $role == one ]] && port=$((20000 + $$ % 10000)) # the previous port may still be in use
options=(-d "$LAB_DEV" -x "$LAB_GID" -s "$bytes" -n "$iterations" -F)

serve() { timeout "$run_s" "$1" "${options[@]}" -p "$2" >"/tmp/server.$1" 2>&1; }

# The line of results begins with the size: bytes, iterations, peak and average in MiB/s, messages in millions.
client() { # PROGRAM PORT WHERE ADDRESS
    local log=/tmp/client.$1 rc=1
    for _ in {1..300}; do
        rc=0
        timeout "$run_s" "$1" "${options[@]}" -p "$2" "$4" >"$log" 2>&1 || rc=$?
        grep -q "Couldn't connect" "$log" || break
        sleep 0.2
    done
    if [[ $rc -ne 0 ]] || ! awk -v name="$1" -v where="$3" '$1 == "65536" {
            printf "perftest %s %s bytes=%d iterations=%d mb_per_s=%.2f\n", name, where, $1, $2, $4 * 1.048576; found = 1 }
            END { exit !found }' "$log"; then
        echo "perftest $1 $3: exit $rc, no figure"
        cat "$log"
        return 1
    fi
}

failed=0
for program in "$@"; do
    case $role in
    one)
        serve "$program" "$port" &
        client "$program" "$port" one "$LAB_IP" || failed=1
        wait || failed=1
        ;;
    server)
        serve "$program" "$port" || { failed=1 && cat "/tmp/server.$program"; }
        ;;
    client)
        client "$program" "$port" pair "$LAB_PEER_IP" || failed=1
        ;;
    esac
    port=$((port + 1))
done
exit "$failed"

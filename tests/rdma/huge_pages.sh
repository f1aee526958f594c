#!/usr/bin/env bash
# A daemon where huge pages are set aside: all of its memory is in them, and it says so. Nothing to do with RDMA: a guest
# is where a machine's pages can be set aside. Run by verbs_one.sh; by hand: lab.sh one 'bash tests/rdma/huge_pages.sh'
set -euo pipefail
dir=$(mktemp -d)
aside=/proc/sys/vm/nr_hugepages
echo 16 >"$aside"
[[ $(cat "$aside") == 16 ]] || { echo "16 huge pages could not be set aside"; exit 1; }
"$TERN_BIN/ternd" --admin-socket "$dir/admin.sock" --workers 1 --page-bytes-min 64K \
    --tenant "name=h,socket=$dir/h.sock,memory=8M,host_memory=4M" 2>"$dir/log" &
daemon=$!
for _ in $(seq 600); do
    grep -qs event=ready "$dir/log" && break
    kill -0 "$daemon" || { cat "$dir/log"; exit 1; }
    sleep 0.1
done
status=$("$TERN_BIN/ternctl" --socket "$dir/admin.sock" status)
kill "$daemon"
wait "$daemon"
echo 0 >"$aside"
grep 'huge pages 12.0 MiB' <<<"$status" || { echo "not all 12 MiB are in huge pages: $status"; exit 1; }

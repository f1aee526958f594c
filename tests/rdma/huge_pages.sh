#!/usr/bin/env bash
# A daemon on a machine with reserved huge pages: all of its memory is in them, and it reports so. The test has nothing
# to do with RDMA; only in a guest can it reserve a machine's pages. Run by verbs_one.sh; by hand: lab.sh one 'bash
# tests/rdma/huge_pages.sh'
source "$(dirname "$0")/../e2e/with_ternd.sh"
aside=/proc/sys/vm/nr_hugepages
echo 16 >"$aside"
[[ $(cat "$aside") == 16 ]] || fail "16 huge pages could not be set aside"
ternd_run huge --huge_pages=yes --page_bytes_min 64K --tenant "name=h,socket=$DIR/h.sock,memory=8M,host_memory=4M"
ends 0 'huge pages 12.0 MiB' "$CTL" --socket "$DIR/huge/admin.sock" status
kill "${PIDS[huge]}"
wait "${PIDS[huge]}"
echo 0 >"$aside"

#!/usr/bin/env bash
# The answers of every program before it does anything: its version, the same for all, and the exit statuses that
# distinguish a wrong command line or configuration from a daemon that could not start.
source "$(dirname "$0")/with_ternd.sh"

VERSION=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$TERN_BUILD/CMakeCache.txt")
[[ -n $VERSION ]] || fail "no version in $TERN_BUILD/CMakeCache.txt"

for program in ternd ternctl tern-agent tern-member tern-sim tern-replay tern-bench; do
    [[ -x $TERN_BIN/$program ]] || continue
    ends 0 "" "$TERN_BIN/$program" --version
    [[ $(cat "$DIR/out") == "$program $VERSION" ]] || fail "$program --version: $(cat "$DIR/out")"
    ends 0 "" "$TERN_BIN/$program" -V
    ends 2 "" "$TERN_BIN/$program" --nonsense
done
ends 0 "" "$TERN_BIN/ternctl" status --version

for wrong in "--seeds many" "--seeds 0" "--seeds 20k" "--first x"; do # playing nothing must not pass
    ends 2 "" "$TERN_BIN/tern-sim" $wrong
done

TENANT=name=t0,socket=$DIR/t0.sock,memory=16M
ends 2 "no tenant" "$TERN_BIN/ternd"
ends 2 "" "$TERN_BIN/ternd" --tenant
ends 2 "" "$TERN_BIN/ternd" --workers many --tenant "$TENANT"
ends 2 "" "$TERN_BIN/ternd" --tenant "$TENANT" operand
ends 2 "" "$TERN_BIN/ternd" --config "$DIR/nowhere.yaml"
ends 0 "" "$TERN_BIN/ternd" --check-config --admin.socket "$DIR/admin.sock" --tenant "$TENANT"
ends 1 "" "$TERN_BIN/ternd" --admin.socket "$DIR/nowhere/admin.sock" --huge_pages=no --workers 1 --tenant "$TENANT"
echo kept >"$DIR/file"
ends 1 "the path exists and is not a socket: remove it" "$TERN_BIN/ternd" --admin.socket "$DIR/file" --huge_pages=no --workers 1 --tenant "$TENANT"
[[ $(cat "$DIR/file") == kept ]] || fail "a file in the place of a socket was touched"
ends 0 "" "$TERN_BIN/ternd" --help
tr -s ' \n' ' ' <"$DIR/out" >"$DIR/help"
grep -q "Exit status: 0 .* 1 .* 2 " "$DIR/help" || fail "--help does not list the exit statuses"

ends 2 "No such file" "$TERN_BIN/tern-replay" --limit 1 --prefill "$DIR/none.sock" --decode "$DIR/none.sock"

# SIGTERM ends a daemon that is still starting, which may take minutes: here it arrives at its first listen()
cat >"$DIR/term.c" <<'C'
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
int listen(int fd, int backlog)
{
    kill(getpid(), SIGTERM);
    return (int)syscall(SYS_listen, fd, backlog);
}
C
"$CC" -shared -fPIC "$DIR/term.c" -o "$DIR/term.so"
ends 143 "" env LD_PRELOAD="$(ternd_preload "$DIR/term.so")" "$TERN_BIN/ternd" --admin.socket "$DIR/admin.sock" --huge_pages=no --workers 1 --tenant "$TENANT"

ternd_start "" 16M 1
ends 0 "\"version\": *\"$VERSION\"" "$TERN_BIN/ternctl" status --json
ends 0 "^e2e  version $VERSION  up " "$TERN_BIN/ternctl" status
kill "$TERND_PID"
rc=0
wait "$TERND_PID" || rc=$?
TERND_PID=
[[ $rc == 0 ]] || fail "SIGTERM: exit status $rc, not 0"
echo "programs: ok"

#!/usr/bin/env bash
# Fault 19: after "ready" the daemon's owner thread allocates nothing, during a replay, in the clear
# and with TLS, while clients misbehave, while some subscribe and while a tenant joins. Real daemons
# under interpose_alloc.c; prints the fault line. Exit 77: cannot be done here.
source "$(dirname "$0")/with_ternd.sh"
[[ -z $SANITIZE ]] || skip "a sanitizer brings an allocator of its own"
"$CC" -std=gnu17 -O1 -g -fno-builtin -shared -fPIC -o "$DIR/interpose.so" "$HERE/interpose_alloc.c"

replay() { # SEED FLAG...
    "$TERN_BIN/tern-replay" --spawn --sessions 8 --turns 6 --concurrency 4 --json --seed "$@" >"$DIR/replay.json"
}

program() { # NAME [CASES]: a test program, if this build has it
    [[ -x $TERN_BUILD/tests/e2e_test_$1 ]] || return 0
    "$TERN_BUILD/tests/e2e_test_$1" ${2:+"$2"} >"$DIR/$1.log" 2>&1 || {
        grep -v ' OK \] \| RUN ' "$DIR/$1.log"
        return 1
    }
}

everything() {
    replay 7 --corrupt 5 || return 1
    [[ $(ls "$TERN_BIN/../reports" | wc -l) == 2 ]] || {
        echo "the replay's two daemons left other reports: $(ls "$TERN_BIN/../reports")"
        return 1
    }
    if [[ $LIBRARIES == *libssl* ]]; then # handshakes, records and the end of connections, from an arena made at start
        bash "$TERN_SOURCE/deploy/make-certs.sh" "$DIR/certs" prefill decode e2e other
        replay 8 --tls "$DIR/certs" && program tls || return 1
    else
        echo "TLS is not in this build: not watched"
    fi
    program protocol && program subscribe || return 1
    bash "$TERN_SOURCE/tests/e2e/test_tenant_joins.sh" >"$DIR/joins.log" 2>&1 || {
        cat "$DIR/joins.log"
        return 1
    }
    # The disk: stores, fetches, a full disk and a failing one, stores at the end.
    program spill "spill_to_*" && program spill "spill_outlives_*" || return 1
    # Fault 24: those clients also sent frames of impossible lengths.
    [[ ! -s $DIR/protocol.log ]] || grep '^fault=24 ' "$DIR/protocol.log" >"$TERN_BIN/../faults"
}
export -f replay program everything
export DIR LIBRARIES TERN_SOURCE TERN_BUILD TERN_BIN
bash "$HERE/noalloc.sh" "$DIR/interpose.so" bash -c everything

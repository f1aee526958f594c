#!/usr/bin/env bash
# The operators' view of the disk tier: `ternctl status`, `ternctl disk`, and `ternctl verify`,
# which needs no daemon and names each damaged extent and its file.
source "$(dirname "$0")/with_ternd.sh"

needs python3 "to check the JSON, and to flip a bit"

SPILL=$DIR/spill
mkdir "$SPILL"
LIBCRYPTO=1
ldd "$TERN_BIN/ternd" | grep -q libcrypto || LIBCRYPTO=
head -c 32 /dev/urandom >"$DIR/key"
chmod 600 "$DIR/key"
HOLD=$TERN_BUILD/tests/holder

# fills EXTRA: a daemon that stores an engine's prefixes, and ends; its output is in S, T, D and E
fills() {
    ternd_start "spill: {dir: $SPILL, bytes: 64M, headroom: 1M, threads: 2$1}" 16M 1
    "$HOLD" hold "$SOCKET" </dev/null >"$DIR/holder.out"
    stored() {
        S=$("$CTL" status --json)
        [[ $(value "j['tenants'][0]['spill']['entries']" <<<"$S") -ge 1 && $(value "j['tenants'][0]['spill']['stores']" <<<"$S") == 0 ]]
    }
    wait_for "a store" stored
    T=$("$CTL" status)
    D=$("$CTL" disk --json)
    E=$("$CTL" disk)
    HASH=$("$CTL" tape "$DIR/tape" --tokens --json | value "j['core_hash']")
    ternd_stop
}

fills ""
json "$S" "j['spill']['dir'] == '$SPILL' and j['spill']['state'] == 'ok' and not j['spill']['encrypted']"
json "$S" "0 < j['spill']['used_bytes'] == j['tenants'][0]['spill']['used_bytes'] <= j['tenants'][0]['spill']['budget_bytes'] == 64 << 20"
json "$S" "j['spill']['recovery']['files'] == 0 and set(j['spill']['recovery']['faults'].values()) == {0}"
json "$S" "sum(j['tenants'][0]['spill']['stored'].values()) >= 1 and j['tenants'][0]['spill']['written_bytes'] > 0"
grep -qE "^  disk tier [0-9.]+ .iB of 64.0 MiB in $SPILL \((direct|buffered)\)$" <<<"$T" || fail "status does not show the disk tier: $T"
grep -qE "^    of t0: [0-9.]+ .iB of 64.0 MiB in [1-9][0-9]* entries; 0 hits" <<<"$T" || fail "status does not show the tenant's part: $T"
json "$D" "len(j['disk']) >= 1 and j['spill']['state'] == 'ok'"
json "$D" "all(set(r) == {'tenant', 'namespace', 'chain', 'depth', 'reason', 'hits', 'bytes', 'own_bytes', 'age_s', 'score', 'in_use'}
    for r in j['disk'])"
json "$D" "all(r['tenant'] == 't0' and r['depth'] % 64 == 0 and 0 < r['own_bytes'] <= r['bytes'] and r['score'] > 0
    and r['reason'] in ('cold', 'continued', 'evict', 'shutdown') for r in j['disk'])"
grep -qE "^t0 .* (cold|evict) +0 " <<<"$E" || fail "disk shows no entry: $E"
[[ $(wc -L <<<"$(grep -v "disk tier\|found at" <<<"$E")") -le 100 ]] || fail "disk is wider than 100 columns: $E"

# ---- verify
ends 0 "all good" "$CTL" verify "$SPILL"
V=$("$CTL" verify "$SPILL" --json)
json "$V" "j['tenants'] == 1 and j['files'] >= 1 and j['good'] == j['extents'] > 0 and j['bytes'] > 0 and j['bad'] == []"
json "$V" "set(j['faults'].values()) == {0}"
FILE=$(ls "$SPILL"/t0/*.tern | head -1)
cp "$FILE" "$DIR/whole"
python3 - "$FILE" <<'PY'
import sys
f = open(sys.argv[1], "r+b")
f.seek(4096 + 4096 + 3)  # behind the file's header and the first extent's: its body
b = f.read(1)
f.seek(-1, 1)
f.write(bytes([b[0] ^ 4]))
PY
ends 1 "1 not good" "$CTL" verify "$SPILL"
grep -qE "^t0/[0-9a-f]{16}\.tern +4096 +checksum" "$DIR/out" || fail "verify does not say where: $(cat "$DIR/out")"
V=$("$CTL" verify "$SPILL" --json) && fail "verify --json ends with 0"
json "$V" "j['good'] == j['extents'] - 1 and j['faults']['checksum'] == 1 and j['bad'] == [{'tenant': 't0', 'offset': 4096,
    'file': 't0/${FILE##*/}', 'fault': 'checksum'}]"
cp "$DIR/whole" "$FILE"
ends 0 "all good" "$CTL" verify "$SPILL"
ends 1 "No such file" "$CTL" verify "$DIR/nowhere"
ends 2 "DIR is missing" "$CTL" verify
mkdir "$DIR/none"
ends 1 "0 extents in 0 files, 0 B: the folder has no files of a disk tier" "$CTL" verify "$DIR/none"
touch "$DIR/none/.lock" # a daemon used this folder and has stored nothing yet
ends 0 "the folder has no files of a disk tier" "$CTL" verify "$DIR/none"

# ---- a tape has the recovered index of the disk: played back it reaches the same state
fills ""
json "$S" "j['spill']['recovery']['extents'] == $(value "j['extents']" <<<"$("$CTL" verify "$SPILL" --json)") > 0"
[[ ! -x $TERN_BIN/tern-sim ]] || ends 0 "state $HASH" "$TERN_BIN/tern-sim" --tape "$DIR/tape"

# ---- with a key
if [[ -n $LIBCRYPTO ]]; then
    rm -rf "$SPILL"/t0
    fills ", encrypt_key_file: $DIR/key"
    json "$S" "j['spill']['encrypted']"
    ends 1 "the files are encrypted: pass their key by --key FILE" "$CTL" verify "$SPILL"
    ends 0 "all good" "$CTL" verify "$SPILL" --key "$DIR/key"
    head -c 32 /dev/urandom >"$DIR/key"
    ends 1 "key: these files were written with another key, or without one" "$CTL" verify "$SPILL" --key "$DIR/key"
    chmod 644 "$DIR/key"
    ends 1 "chmod 600" "$CTL" verify "$SPILL" --key "$DIR/key"
    cp "$DIR/config.yaml" "$DIR/wrong.yaml"
    ends 2 "spill.encrypt_key_file: .*chmod 600" "$TERN_BIN/ternd" --config "$DIR/wrong.yaml" --check-config
fi
ends 2 "spill.dir $DIR/nowhere: No such file" "$TERN_BIN/ternd" --tenant "name=a,socket=$DIR/a.sock,memory=1M" \
    --admin.socket "$DIR/b.sock" --spill.dir "$DIR/nowhere" --spill.bytes 1M --check-config

# ---- messages at the start
rm -rf "$SPILL"/t0
mkdir "$SPILL/gone"
fills ""
json "$S" "j['spill']['error'] is None"
grep -q "level=warn event=spill_foreign folder=gone " "$DIR/log" || fail "no line about a folder of no tenant"
! grep -q "event=spill_foreign folder=t0\|event=spill_too_large" "$DIR/log" || fail "a line too many about the folder"
ternd_start "spill: {dir: $SPILL, bytes: 1000T, headroom: 1M, threads: 1}" 16M 1
grep -q "level=warn event=spill_too_large dir=$SPILL bytes=[0-9]* lacking_bytes=[1-9]" "$DIR/log" || fail "no line about bytes that are not there"
ternd_stop
ends 0 "warning: spill.bytes: the file system of $SPILL lacks [0-9]* bytes" "$TERN_BIN/ternd" --config "$DIR/config.yaml" --check-config
echo "all passed"

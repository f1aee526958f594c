#!/usr/bin/env bash
# Runs every command of Tern's programs that docs/operations.md and docs/rdma.md show, in text and
# blocks, exactly as written; the table below fills in the words in capitals. An outdated command,
# or one without its values, is a failure. ternd must accept the blocks of YAML as configurations.
source "$(dirname "$0")/with_ternd.sh"
needs python3 "to read the document"

mkdir "$DIR/spill"
cp "$TERN_SOURCE/deploy/ternd-gpus.yaml" "$DIR/gpus.yaml"
head -c 32 /dev/urandom >"$DIR/key"
chmod 600 "$DIR/key"
echo '{"timestamp": 0, "input_length": 1500, "output_length": 10, "hash_ids": [1, 2, 3]}' >"$DIR/trace"
encrypt=
! grep -q libcrypto <<<"$LIBRARIES" || encrypt=", encrypt_key_file: $DIR/key"
DRAIN_MS=20000
ternd_start "insecure_peers: true
spill: {dir: $DIR/spill, bytes: 64M, headroom: 1M$encrypt}" 16M 1
CONFIG=$DIR/config.yaml
REPLAY="tern-replay --spawn --page-bytes 512 --profile tiny --pool-pages 500"
mkfifo "$DIR/hold"
"$TERN_BUILD/tests/holder" hold "$SOCKET" <"$DIR/hold" >"$DIR/held" 2>&1 & # so that a drain does not end the daemon
PIDS[holder]=$!
exec 9>"$DIR/hold"
wait_for "a session" grep -q . "$DIR/held"

declare -A RUN=( # what is run instead; '-': what runs it is said
    ["ternd --plan"]="ternd --config $CONFIG --plan"
    ["ternd --config /usr/share/tern/ternd-gpus.yaml --plan"]="ternd --config $DIR/gpus.yaml --plan"
    ["ternd --check-config"]="ternd --config $CONFIG --check-config"
    ["ternd --config /etc/tern/ternd.yaml --check-config"]="ternd --config $CONFIG --check-config"
    ["ternd --config /etc/tern/ternd.yaml"]="- ternd_start, above"
    ["ternctl COMMAND --help"]="ternctl status --help"
    ["ternctl drain --wait"]="- it ends the daemon: test_ternctl.sh, and below"
    ["ternctl peer add"]="ternctl peer add a 127.0.0.1:1 --tenants t0"
    ["ternctl peer add NAME HOST:PORT --tenants NAME+NAME"]="ternctl peer add b 127.0.0.1:1 --tenants t0"
    ["ternctl peer remove NAME"]="ternctl peer remove a"
    ["ternctl ping"]="ternctl ping --count 1"
    ["ternctl pools --wide | less -S"]="ternctl pools --wide"
    ["ternctl tape FILE"]="ternctl tape $DIR/tape"
    ["ternctl tape read FILE"]="ternctl tape read $DIR/tape"
    ["ternctl top"]="ternctl top --once --every 100"
    ["ternctl tree --pool 1"]="ternctl tree"
    ["ternctl verify"]="ternctl verify $DIR/spill${encrypt:+ --key $DIR/key}"
    ["ternctl verify DIR --key FILE"]="ternctl verify $DIR/spill${encrypt:+ --key $DIR/key}"
    ["tern-sim --tape FILE"]="tern-sim --tape $DIR/tape"
    ["tern-replay --trace FILE --pool-pages N"]="$REPLAY --trace $DIR/trace"
    ["tern-bench spill"]="- tests/run.sh"
)

python3 - "$DIR" "$TERN_SOURCE"/docs/{operations,rdma}.md <<'PY' || fail "the document"
import pathlib, re, sys

folder = pathlib.Path(sys.argv[1])
text = "".join(pathlib.Path(document).read_text() for document in sys.argv[2:])
blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.S | re.M)
prose = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
lines = [line.removeprefix("$ ") for _, block in blocks for line in block.splitlines()]
spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]
commands = {re.sub(r" +#.*", "", line).strip() for line in lines + spans}
commands = {c for c in commands if re.match(r"(ternd|ternctl|tern-replay|tern-sim|tern-bench) ", c)}
order = ["ternctl tape FILE", "ternctl peer add", "ternctl drain", "ternctl undrain"]  # before the commands that need it
rank = {c: i for i, c in enumerate(order)}
(folder / "commands").write_text("".join(c + "\n" for c in sorted(commands, key=lambda c: (rank.get(c, len(order)), c))))
shown = [block for kind, block in blocks if kind == "yaml" or block.startswith(("node:", "tenants:"))]
for i, block in enumerate(shown):
    (folder / f"shown{i}.yaml").write_text(block)
assert len(commands) > 30 and len(shown) >= 3, "it is written in another way now"
PY

n=0
while read -r command; do
    run=${RUN[$command]:-$command}
    unset "RUN[$command]"
    [[ $run != -* ]] || continue
    ! grep -q '\b[A-Z]\{2,\}\b\|[^ ]*/etc/' <<<"$run" || fail "nothing says how to run: $command"
    read -ra words <<<"$run"
    ends 0 "" "$TERN_BIN/${words[0]}" "${words[@]:1}" </dev/null
    n=$((n + 1))
done <"$DIR/commands"
((${#RUN[@]} == 0)) || fail "the document does not show: ${!RUN[*]}"

for block in "$DIR"/shown*.yaml; do
    grep -q '^tenants:' "$block" || printf 'tenants:\n  - {name: chat, socket: %s, memory: 16M}\n' "$DIR/chat.sock" >>"$block"
    ends 0 "^memory_bytes" "$TERN_BIN/ternd" --config "$block" --plan
done
exec 9>&-
ends 0 "" "$CTL" drain --wait
echo "operations: $n commands and $(ls "$DIR"/shown*.yaml | wc -l) configurations, ok"

#!/usr/bin/env bash
# The daemons' counters of a workload match the workload's own figures: prompts, tokens matched on the device and on the
# host, and tokens fetched from the peer, to the token. Durations are reported, in tables that fit 100 columns.
source "$(dirname "$0")/with_ternd.sh"
needs python3 "to read figures"

free_ports PREFILL_PORT DECODE_PORT

# daemon NODE PORT PEER PEER-PORT
daemon() {
    ternd_run "$1" --page_bytes_min 512 --tenant "name=default,socket=$DIR/$1/default.sock,memory=16M,host_memory=16M" \
        --listen "127.0.0.1:$2" --insecure_peers --peer "name=$3,address=127.0.0.1:$4,tenants=default"
}
daemon prefill "$PREFILL_PORT" decode "$DECODE_PORT"
daemon decode "$DECODE_PORT" prefill "$PREFILL_PORT"

ctl() { # NODE COMMAND...
    "$CTL" --socket "$DIR/$1/admin.sock" "${@:2}"
}

tool() { # of the replay's report
    value "j['$1']" <"$DIR/json"
}

# counted NODE EXPRESSION WANTED: of the tenant's figures t
counted() {
    local got
    got=$(ctl "$1" stats --json | value "(lambda t: $2)(j['tenants'][0])")
    [[ $got == "$3" ]] || fail "$1: $2 is $got, and the replay says $3: $(ctl "$1" stats --json) $(cat "$DIR/json")"
    echo "  $1: $2 = $got"
}

up() {
    [[ $(ctl "$1" status --json | value "j['peers_up']") == 1 ]]
}
wait_for "the links" up prefill
wait_for "the links" up decode

# replay SEED POOL-PAGES
replay() {
    "$TERN_BIN/tern-replay" --prefill "$DIR/prefill/default.sock" --decode "$DIR/decode/default.sock" --profile tiny \
        --page-bytes 512 --sessions 12 --turns 6 --concurrency 1 --pool-pages "$2" --host-pages 2000 --seed "$1" --json \
        >"$DIR/json" 2>"$DIR/err" || fail "tern-replay: $(cat "$DIR/json" "$DIR/err")"
}
replay 1 2000
# An aborted and retried request is counted again: here there is none.
[[ $(tool retries) == 0 && $(tool matched_tokens) -gt 0 && $(tool transferred_pages) -gt 0 ]] ||
    fail "the workload is not one that tries it: $(cat "$DIR/json")"

counted prefill "t['prompt_tokens']" "$(tool prompt_tokens)"
counted prefill "t['matched_device_tokens']" "$(tool matched_tokens)"
counted prefill "t['fetched_peer_tokens']" 0
counted decode "t['prompt_tokens']" "$(tool prompt_tokens)"
counted decode "t['matched_device_tokens'] + t['fetched_peer_tokens']" \
    $((64 * $(tool prompt_pages)))
counted decode "t['committed_tokens']" 0

ctl decode stats --json >"$DIR/stats"
# The count of each histogram is the sum of its buckets.
json "$(cat "$DIR/stats")" "(j['latencies']['fetch']['count'] > 0 and j['requests']['match']['count'] > 0 and
    all(sum(h['buckets']) == h['count'] and h['p50_us'] <= h['p99_us']
        for of in ('latencies', 'requests') for h in j[of].values()))"
[[ $(value "j['peers'][0]['bytes_in']['tcp']" <"$DIR/stats") == $((512 * $(tool transferred_pages))) ]] ||
    fail "bytes of the peer: $(cat "$DIR/stats")"
# Everything was fetched from the one peer, and each fetch is counted for it.
json "$(cat "$DIR/stats")" "(j['peers'][0]['fetched_tokens'] == j['tenants'][0]['fetched_peer_tokens'] > 0 and
    j['peers'][0]['fetch']['count'] == j['latencies']['fetch']['count'] and j['peers'][0]['failed_fetches'] == 0)"
ctl decode stats >"$DIR/table"
grep -q "^fetch from prefill  *[0-9]" "$DIR/table" || fail "no times of the peer: $(cat "$DIR/table")"
json "$(ctl prefill status --json)" "j['figures'][0]['prompt_tokens'] == $(tool prompt_tokens)"
json "$(ctl prefill namespaces --json)" "sum(n['prompt_tokens'] for n in j['namespaces']) <= $(tool prompt_tokens)"

# With a pool that is too small, nodes are evicted and loaded from the host again.
replay 2 300
json "$(ctl prefill stats --json)" "(j['latencies']['publish']['count'] > 0 and j['latencies']['seal']['count'] > 0 and
    j['latencies']['serve']['count'] > 0 and j['latencies']['evicted_age']['count'] > 0 and
    j['tenants'][0]['evicted_nodes'] > 0 and j['tenants'][0]['matched_host_tokens'] > 0)"

for table in stats namespaces; do
    ctl decode $table >"$DIR/table"
    [[ $(awk '{ if (length($0) > n) n = length($0) } END { print n }' "$DIR/table") -le 100 ]] ||
        fail "more than 100 columns: $(cat "$DIR/table")"
    cat "$DIR/table"
done
echo "all passed"

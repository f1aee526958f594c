#!/usr/bin/env bash
# Sessions of 1,200,000 tokens and more through two daemons: with pages of 64 and of 16 tokens, and
# with windows. One call fetches each whole session, and every byte is compared. TERN_FULL=1: more
# sessions and turns, several at a time.
. "$(dirname "$0")/replay_lib.sh"

long=(--sessions 1 --turns 2 --turn-tokens 600000)
[ "${TERN_FULL:-0}" = 1 ] && long=(--sessions 4 --turns 4 --turn-tokens 300000 --concurrency 2)
for profile in tiny tiny-16 deepseek-v4; do
    replay --profile "$profile" --page-bytes 512 "${long[@]}"
    [ "$(field prompt_tokens)" -ge 1800000 ] || fail "$profile: $(field prompt_tokens) tokens are not long sessions"
    [ "$(field transferred_pages)" -gt 0 ] || fail "$profile: nothing was fetched"
done
# Nearly the maximum of a session's tokens: its table needs a larger frame_body_max, which tern-replay sets.
[ "${TERN_FULL:-0}" = 1 ] && replay --profile tiny-16 --page-bytes 512 --sessions 1 --turns 1 --turn-tokens 4000000
echo "all passed"

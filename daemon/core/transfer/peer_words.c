/* See peer_words.h. */
#include "core/transfer/peer_words.h"

#include "core/tree/tokens.h"

static const struct {
    bool source;
    uint32_t errors; /* a bit each */
} words[PEER_MSG_COUNT] = {
#define X(kind, source, errors) [PEER_##kind] = {source, errors},
    PEER_WORDS_TABLE(X)
#undef X
};

static_assert(TERN_ERR_COUNT <= 32, "a bit each");

static bool is_kind(enum peer_msg_kind kind)
{
    return kind >= PEER_PULL_OPEN && kind < PEER_MSG_COUNT;
}

bool peer_may_send(enum peer_msg_kind kind, bool source)
{
    return is_kind(kind) && words[kind].source == source;
}

enum tern_err peer_err_heard(enum peer_msg_kind kind, uint32_t word)
{
    bool may = is_kind(kind) && word < TERN_ERR_COUNT && (words[kind].errors >> word & 1) != 0;

    return may ? (enum tern_err)word : TERN_PEER_LOST;
}

static bool runs_in_range(const struct peer_msg *m)
{
    if (m->nruns > GROUPS_MAX)
        return false;
    for (uint32_t i = 0; i < m->nruns; i++)
        if (m->runs[i].group >= GROUPS_MAX)
            return false;
    return true;
}

const char *peer_msg_unfit(const struct peer_msg *m, uint32_t ntokens)
{
    const bool carries = m->kind == PEER_PULL_OPEN || m->kind == PEER_PULL_TOKENS;

    if (!is_kind(m->kind))
        return "the message has a kind that no peer sends";
    if (m->err != TERN_OK && words[m->kind].errors == MAY_SAY(OK))
        return "the message has an error, and its kind allows none";
    if (m->from > m->to || peer_msg_until(m) > m->to || (m->until != 0 && m->until < m->at))
        return "the message's lengths are not in ascending order";
    if (carries && (m->at > m->to || ntokens != peer_msg_tokens(m)))
        return "the number of tokens in the message differs from its lengths";
    if (m->handed > SESSION_TOKENS_MAX || (!carries && m->to > SESSION_TOKENS_MAX))
        return "the message has a length above that of the longest possible session";
    if (m->blob_bytes > TICKET_BLOB_BYTES)
        return "the message has more bytes than a ticket's blob may have";
    if (!runs_in_range(m))
        return "the message names pages of a group that no pool has";
    for (uint32_t g = 0; g < GROUPS_MAX; g++)
        if (m->page_tokens[g] > PAGE_TOKENS_MAX)
            return "the message names pages with more tokens than a page can have";
    return NULL;
}

bool peer_tokens_fit(const struct peer_msg *m)
{
    const uint32_t until = peer_msg_until(m);
    const struct req_tokens t = {
        .base = m->at, .v = m->tokens, .n = until - m->at, .keys = m->keys, .nkeys = m->nkeys};
    struct reason unused;

    if (m->to > SESSION_TOKENS_MAX || until > m->to || until < m->at || t.n > OPEN_TOKENS_MAX ||
        m->nkeys > EXTRA_KEYS_MAX)
        return false;
    if (m->kind == PEER_PULL_OPEN &&
        (m->from > m->to || m->history > m->to || m->at_least > m->to || m->at != 0))
        return false;
    return keys_in_order(&t, &unused) == TERN_OK;
}

/* See blocks.h. Lists of keys become token lists here, and one request has as many of them as
 * fit. */
#include "blocks.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/err.h"

#define ASK_REST 2048u /* the most bytes of a request beside its keys */

_Static_assert(ASK_REST + BLOCK_TOKENS * 4 < CLIENT_BODY_MIN, "a request has room for keys");

static enum tern_err check_value(const struct tern_block_set *set, const struct tern_block_value *v)
{
    uint64_t bytes = 0;

    if (v->niov > 0 && !v->iov)
        return TERN_INVALID;
    for (uint32_t i = 0; i < v->niov && bytes <= set->value_bytes; i++)
        bytes += v->iov[i].iov_len <= set->value_bytes ? v->iov[i].iov_len : set->value_bytes + 1;
    return bytes == set->value_bytes ? TERN_OK : TERN_INVALID;
}

enum tern_err blocks_begin(struct tern_block_set *set, const struct block_list *list)
{
    struct tern *t = set->t;

    t->text[0] = '\0';
    memset(set->host, 0, sizeof set->host);
    set->nhosts = 0;
    if (list->n > TERN_BLOCKS_LIST_MAX || (list->n > 0 && !list->keys))
        return set_error(t, TERN_INVALID, "a list has at most TERN_BLOCKS_LIST_MAX (4096) keys");
    for (uint32_t i = 0; i < list->n; i++) {
        const struct tern_block_key *k = &list->keys[i];

        if (!k->bytes || k->n == 0 || k->n > TERN_BLOCK_KEY_MAX)
            return set_error(t, TERN_INVALID, "a key has 1 to TERN_BLOCK_KEY_MAX (32) bytes");
        if (list->values && check_value(set, &list->values[i]) != TERN_OK)
            return set_error(t, TERN_INVALID,
                             "the pieces of a value must have value_bytes of the set in total");
        memset(set->words[i], 0, sizeof set->words[i]);
        memcpy(set->words[i], k->bytes, k->n);
        set->words[i][BLOCK_KEY_WORDS] = k->n;
    }
    return TERN_OK;
}

/* Returns the pages in the answer; NULL: it is no answer to that many keys. */
static const uint8_t *pages_of(const Tern__Wire__BlocksReply *reply, uint32_t n)
{
    if (reply->n_runs != 1 || reply->runs[0]->refs.len != n * sizeof(struct tern_page))
        return NULL;
    return reply->runs[0]->refs.data;
}

/* The keys at the next n of the places `at`; at NULL: n places from `from` on. */
struct asked_keys {
    const uint32_t *at;
    uint32_t from, n;
};

static uint32_t place_at(const struct asked_keys *k, uint32_t i)
{
    return k->at ? k->at[k->from + i] : k->from + i;
}

/* GONE: the call under way was cancelled. */
static enum tern_err go_on(const struct tern_block_set *set)
{
    if (!atomic_load_explicit(&set->cancelled, memory_order_relaxed))
        return TERN_OK;
    return set_error(set->t, TERN_GONE, "the call was cancelled");
}

/* Returns the place of a name in set->hosts, from 1 on; 0: there is no room. */
static uint16_t host_named(struct tern_block_set *set, const char *name)
{
    for (uint32_t i = 0; i < set->nhosts; i++)
        if (strcmp(set->hosts[i], name) == 0)
            return (uint16_t)(i + 1);
    if (set->nhosts == BLOCKS_HOSTS || strlen(name) > WIRE_STRING_MAX)
        return 0;
    memcpy(set->hosts[set->nhosts], name, strlen(name) + 1);
    return (uint16_t)++set->nhosts;
}

/* Takes the peers that have the blocks. A block without a peer is nowhere. */
static void take_hosts(struct tern_block_set *set, const Tern__Wire__BlocksReply *reply,
                       const struct asked_keys *k)
{
    for (uint32_t i = 0; i < k->n; i++) {
        struct tern_page *page = &set->page[place_at(k, i)];
        const uint32_t host = page->generation - PLACE_ELSEWHERE;
        const bool named = page->generation >= PLACE_ELSEWHERE && host < reply->n_hosts;

        set->host[place_at(k, i)] = named ? host_named(set, reply->hosts[host]) : 0;
        *page = (struct tern_page){.generation =
                                       set->host[place_at(k, i)] ? PLACE_ELSEWHERE : PLACE_NOWHERE};
    }
}

static enum tern_err ask_piece(struct tern_block_set *set, Tern__Wire__Blocks *m,
                               const struct asked_keys *k, uint64_t deadline_ns,
                               blocks_while_fn *meanwhile, void *arg)
{
    const ProtobufCMessage *msg;
    const uint8_t *pages;
    struct call call;

    TRY(go_on(set));
    TRY(call_start_by(set->t, FRAME_BLOCKS, deadline_ns, &call));
    TRY(call_put(set->t, &call, 0, &m->base));
    set->counts.requests++;
    if (meanwhile) {
        (void)client_socket_send(&set->t->socket); /* call_answer reports a failure */
        meanwhile(arg);
        call.sleep_ms = 0;
    }
    TRY(call_answer(set->t, &call, &msg));
    pages = pages_of((const Tern__Wire__BlocksReply *)msg, k->n);
    if (!pages)
        return not_an_answer(set->t, TERN_MALFORMED);
    for (uint32_t i = 0; i < k->n; i++)
        memcpy(&set->page[place_at(k, i)], pages + i * sizeof(struct tern_page),
               sizeof(struct tern_page));
    if (m->what == BLOCKS_ASK)
        take_hosts(set, (const Tern__Wire__BlocksReply *)msg, k);
    return TERN_OK;
}

enum tern_err blocks_ask(struct tern_block_set *set, enum blocks_what what, const uint32_t *at,
                         uint32_t n, uint64_t deadline_ns)
{
    return blocks_ask_while(set, what, at, n, deadline_ns, NULL, NULL);
}

enum tern_err blocks_ask_while(struct tern_block_set *set, enum blocks_what what,
                               const uint32_t *at, uint32_t n, uint64_t deadline_ns,
                               blocks_while_fn *meanwhile, void *arg)
{
    const uint32_t room = (set->t->socket.body_max - ASK_REST) / sizeof *set->words,
                   piece = what == BLOCKS_ASK ? BLOCKS_ASKED : BLOCKS_PIECE,
                   most = room < piece ? room : piece;
    Tern__Wire__Tokens keys = TERN__WIRE__TOKENS__INIT;
    Tern__Wire__Blocks m = TERN__WIRE__BLOCKS__INIT;
    struct asked_keys k = {.at = at};
    Tern__Wire__Namespace ns;

    TRY(put_namespace(set->t, &set->ns, &ns));
    m.has_pool = m.has_what = 1;
    m.pool = set->pool;
    m.ns = &ns;
    m.what = (uint32_t)what;
    m.host = what == BLOCKS_ASK ? set->asks : NULL;
    m.keys = &keys;
    keys.has_tokens = 1;
    /* Ask for the last keys first: the daemon evicts the block used longest ago, so the first keys
     * stay longest. */
    for (uint32_t left = n; left > 0; left -= k.n) {
        k.n = left < most ? left : most;
        k.from = left - k.n;
        for (uint32_t i = 0; at && i < k.n; i++)
            memcpy(set->gathered[i], set->words[place_at(&k, i)], sizeof set->gathered[i]);
        keys.tokens =
            wire_bytes(at ? set->gathered[0] : set->words[k.from], k.n * sizeof *set->words);
        TRY(ask_piece(set, &m, &k, deadline_ns, left == n ? meanwhile : NULL, arg));
    }
    return TERN_OK;
}

enum tern_err blocks_ask_hosts(struct tern_block_set *set, uint32_t n, uint64_t deadline_ns)
{
    uint32_t nowhere = 0;
    enum tern_err err;

    for (uint32_t i = 0; i < n && set->asks[0]; i++)
        if (!block_is_there(set->page[set->todo[i]]))
            set->gone[nowhere++] = set->todo[i];
    err = blocks_ask(set, BLOCKS_ASK, set->gone, nowhere, deadline_ns);
    /* Too many questions are under way, or the peer was removed: no peer has the blocks. */
    return err == TERN_BUSY || err == TERN_INVALID ? TERN_OK : err;
}

enum tern_err block_copy_of(struct tern_block_set *set, const struct block_list *list, uint32_t at,
                            uint32_t page, struct block_copy *ret)
{
    const uint64_t offset = page * set->page_bytes;

    if (page == 0 || offset / set->page_bytes != page ||
        tern_pool_info(set->map)->bytes < set->page_bytes ||
        offset > tern_pool_info(set->map)->bytes - set->page_bytes)
        return not_an_answer(set->t, TERN_MALFORMED);
    *ret = (struct block_copy){
        .name = {.ns = {set->ns_hash[0], set->ns_hash[1]}, .key_bytes = list->keys[at].n},
        .page = tern_pool_info(set->map)->base + offset,
        .iov = list->values[at].iov,
        .niov = list->values[at].niov};
    memcpy(ret->name.key, set->words[at], TERN_BLOCK_KEY_MAX);
    return TERN_OK;
}

enum tern_err blocks_copy(struct tern_block_set *set, uint32_t n, enum copy_way way)
{
    TRY(go_on(set));
    if (!copier_is_loose(set->copier) && copier_run(set->copier, set->copies, n, way))
        return TERN_OK;
    return blocks_gpu_failed(set);
}

enum tern_err blocks_gpu_failed(struct tern_block_set *set)
{
    return set_error(set->t, TERN_INTERNAL,
                     "the GPU with the blocks has failed: close the set, and open it again when "
                     "the daemon has restarted");
}

uint32_t blocks_left_ms(uint64_t deadline_ns)
{
    uint64_t now = client_socket_now_ns();

    return now < deadline_ns ? (uint32_t)((deadline_ns - now) / 1000000u + 1) : 1;
}

bool blocks_nap(const struct tern_block_set *set, uint64_t deadline_ns)
{
    if (atomic_load_explicit(&set->cancelled, memory_order_relaxed) ||
        client_socket_now_ns() + 2 * BLOCKS_NAP_NS >= deadline_ns)
        return false;
    (void)nanosleep(&(struct timespec){.tv_nsec = BLOCKS_NAP_NS}, NULL);
    return true;
}

/* tern_blocks_get. Blocks of the pool are copied without a pin, and the copy is verified: see
 * block_copy.h. Blocks of other tiers are loaded and pinned, a few at a time. */
#include "blocks.h"

#include <string.h>

#include "base/err.h"

/* A get under way, with the places of the list to look up once more. */
struct get {
    struct tern_block_set *set;
    struct block_list list;
    uint8_t *got;
    uint32_t ntodo; /* number of places in set->todo */
    uint32_t tries;
};

/* Removes blocks whose page is still theirs but does not have the bytes of any put, so that they
 * may be put anew. */
static enum tern_err drop_damaged(struct get *g, const uint32_t *at, uint32_t n)
{
    if (n == 0)
        return TERN_OK;
    g->set->counts.damaged += n;
    return blocks_ask(g->set, BLOCKS_REMOVE, at, n, g->list.deadline_ns);
}

/* Copies n blocks of the pool, whose places are at[]; keeps the places whose copies are wrong. */
static enum tern_err copy_blocks(struct get *g, const uint32_t *at, uint32_t n, uint32_t *ret_wrong)
{
    struct tern_block_set *set = g->set;
    const uint32_t most = copier_most(set->copier);
    uint32_t wrong = 0;

    for (uint32_t from = 0, take; from < n; from += take) {
        take = n - from < most ? n - from : most;
        for (uint32_t i = 0; i < take; i++)
            TRY(block_copy_of(set, &g->list, at[from + i], set->page[at[from + i]].index,
                              &set->copies[i]));
        TRY(blocks_copy(set, take, COPY_FROM_PAGES));
        for (uint32_t i = 0; i < take; i++) {
            if (set->copies[i].ok)
                g->got[at[from + i]] = 1;
            else
                set->wrong[wrong++] = at[from + i];
        }
    }
    *ret_wrong = wrong;
    return TERN_OK;
}

/* Looks up blocks with a wrong copy once more. A block that has the same page as before is damaged,
 * because a page that was reused has another generation. */
static enum tern_err look_again(struct get *g, uint32_t wrong)
{
    struct tern_block_set *set = g->set;
    uint32_t damaged = 0;

    if (wrong == 0)
        return TERN_OK;
    for (uint32_t i = 0; i < wrong; i++)
        set->before[i] = set->page[set->wrong[i]];
    TRY(blocks_ask(set, BLOCKS_FIND, set->wrong, wrong, g->list.deadline_ns));
    for (uint32_t i = 0; i < wrong; i++) {
        const struct tern_page is = set->page[set->wrong[i]], was = set->before[i];

        if (is.index == was.index && is.generation == was.generation)
            set->gone[damaged++] = set->wrong[i];
        else
            set->todo[g->ntodo++] = set->wrong[i];
    }
    set->counts.again += wrong - damaged;
    return drop_damaged(g, set->gone, damaged);
}

/* Loads blocks from other tiers, a piece at a time. */
static enum tern_err load_blocks(struct get *g, const uint32_t *at, uint32_t n)
{
    struct tern_block_set *set = g->set;
    const uint32_t most =
        copier_most(set->copier) < BLOCKS_SESSIONS ? copier_most(set->copier) : BLOCKS_SESSIONS;
    uint32_t pages[BLOCKS_SESSIONS];
    enum tern_err err = TERN_OK;

    for (uint32_t from = 0, take; from < n && err == TERN_OK; from += take) {
        uint32_t there = 0, wrong = 0;

        take = n - from < most ? n - from : most;
        TRY(sessions_ready(set, &set->loads, take, g->list.deadline_ns));
        err = sessions_load(set, at + from, take, g->list.deadline_ns, pages);
        for (uint32_t i = 0; err == TERN_OK && i < take; i++)
            if (pages[i] != 0) {
                set->page[at[from + i]] = (struct tern_page){.index = pages[i]};
                set->gone[there++] = at[from + i];
            }
        if (err == TERN_OK)
            err = copy_blocks(g, set->gone, there, &wrong);
        sessions_rest(set, take, g->list.deadline_ns);
        if (err == TERN_OK) /* they were pinned, so their pages were not reused */
            err = drop_damaged(g, set->wrong, wrong);
    }
    return err;
}

static enum tern_err get_round(struct get *g)
{
    struct tern_block_set *set = g->set;
    uint32_t n = g->ntodo, here = 0, elsewhere = 0, wrong;

    TRY(blocks_ask(set, BLOCKS_TOUCH, set->todo, n, g->list.deadline_ns));
    TRY(blocks_ask_hosts(set, n, g->list.deadline_ns));
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = set->todo[i];

        if (set->page[at].index != 0)
            set->here[here++] = at;
        else if (block_is_there(set->page[at]))
            set->elsewhere[elsewhere++] = at;
    }
    g->ntodo = 0;
    TRY(copy_blocks(g, set->here, here, &wrong));
    TRY(look_again(g, wrong));
    return load_blocks(g, set->elsewhere, elsewhere);
}

enum tern_err tern_blocks_get(struct tern_block_set *set, const struct tern_block_key *keys,
                              const struct tern_block_value *values, uint32_t n,
                              uint32_t deadline_ms, uint8_t *ret_got)
{
    ENTER(set->t);
    struct get g = {.set = set,
                    .list = {keys, values, n, deadline_at(deadline_ms)},
                    .got = ret_got,
                    .ntodo = n};
    enum tern_err err = TERN_OK;

    if (n > 0 && (!values || !ret_got))
        return set_error(set->t, TERN_INVALID, "a get needs values and a place for its results");
    TRY(blocks_begin(set, &g.list));
    if (n > 0)
        memset(ret_got, 0, n);
    for (uint32_t i = 0; i < n; i++)
        set->todo[i] = i;
    blocks_poll(set, n);
    for (; g.ntodo > 0 && g.tries < BLOCKS_TRIES && err == TERN_OK; g.tries++)
        err = get_round(&g);
    blocks_poll(set, 0);
    set->counts.gets += n;
    for (uint32_t i = 0; i < n; i++)
        set->counts.hits += ret_got[i];
    return err;
}

/* tern_blocks_pin. A pinned block has a session of its own, taken from the set's sessions. */
#include "blocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

void pins_free(struct tern_block_set *set)
{
    while (set->pins) {
        struct tern_block_pin *pin = set->pins;

        set->pins = pin->next;
        free(pin);
    }
}

static void forget(struct tern_block_pin *pin)
{
    struct tern_block_pin **at = &pin->set->pins;

    while (*at != pin)
        at = &(*at)->next;
    *at = pin->next;
    free(pin);
}

/* Moves the sessions of the piece that have a block to the pin; the others are released. */
static void keep_sessions(struct tern_block_set *set, const uint32_t *at, const uint32_t *pages,
                          uint32_t n, struct tern_block_pin *pin, uint8_t *ret_pinned)
{
    for (uint32_t i = 0; i < n; i++) {
        if (pages[i] == 0) {
            set->loads.dirty |= 1ull << i; /* it has matched, and has no block */
            continue;
        }
        pin->session[pin->n++] = set->loads.v[i];
        set->loads.v[i] = 0;
        set->pinned++;
        if (ret_pinned)
            ret_pinned[at[i]] = 1;
    }
}

static enum tern_err pin_all(struct tern_block_set *set, const struct block_list *list,
                             struct tern_block_pin *pin, uint8_t *ret_pinned)
{
    uint32_t pages[BLOCKS_SESSIONS];

    for (uint32_t from = 0, take; from < list->n; from += take) {
        take = list->n - from < BLOCKS_SESSIONS ? list->n - from : BLOCKS_SESSIONS;
        for (uint32_t i = 0; i < take; i++)
            set->todo[i] = from + i;
        TRY(sessions_ready(set, &set->loads, take, list->deadline_ns));
        TRY(sessions_load(set, set->todo, take, list->deadline_ns, pages));
        keep_sessions(set, set->todo, pages, take, pin, ret_pinned);
    }
    return TERN_OK;
}

static enum tern_err end_sessions(struct tern_block_pin *pin, uint64_t deadline_ns)
{
    enum tern_err err = sessions_close(pin->set, pin->session, pin->n, deadline_ns);
    uint32_t left = 0;

    for (uint32_t i = 0; i < pin->n; i++)
        if (pin->session[i] != 0)
            pin->session[left++] = pin->session[i];
    pin->set->pinned -= pin->n - left;
    pin->n = left;
    return err;
}

/* Ends the sessions of a failed pin, now or in a later call. The error text stays that of the
 * failure. */
static void give_up(struct tern_block_pin *pin, enum tern_err err)
{
    struct tern_block_set *set = pin->set;
    char text[QUICK_TEXT_MAX];

    snprintf(text, sizeof text, "%s", set->t->text);
    (void)end_sessions(pin, deadline_at(BLOCKS_END_MS));
    sessions_leave(set, pin->session, pin->n);
    pin->n = 0;
    forget(pin);
    set_error(set->t, err, text);
}

enum tern_err tern_blocks_pin(struct tern_block_set *set, const struct tern_block_key *keys,
                              uint32_t n, uint32_t deadline_ms, uint8_t *ret_pinned,
                              struct tern_block_pin **ret)
{
    ENTER(set->t);
    struct block_list list = {keys, NULL, n, deadline_at(deadline_ms)};
    struct tern_block_pin *pin;
    enum tern_err err;

    TRY(blocks_begin(set, &list));
    if (n > TERN_BLOCKS_PINNED_MAX - set->pinned)
        return set_error(set->t, TERN_QUOTA,
                         "a set has at most TERN_BLOCKS_PINNED_MAX (1024) blocks pinned: unpin "
                         "some, or open another set");
    pin = calloc(1, sizeof *pin + n * sizeof pin->session[0]);
    if (!pin)
        return set_error(set->t, TERN_INTERNAL, NULL);
    pin->set = set;
    pin->next = set->pins;
    set->pins = pin;
    if (ret_pinned && n > 0)
        memset(ret_pinned, 0, n);
    err = pin_all(set, &list, pin, ret_pinned);
    if (err == TERN_OK) {
        *ret = pin;
        return TERN_OK;
    }
    if (ret_pinned && n > 0)
        memset(ret_pinned, 0, n);
    give_up(pin, err);
    return err;
}

enum tern_err tern_blocks_unpin(struct tern_block_pin **pin, uint32_t deadline_ms)
{
    if (!*pin)
        return TERN_OK;
    ENTER((*pin)->set->t);
    (*pin)->set->t->text[0] = '\0';
    TRY(end_sessions(*pin, deadline_at(deadline_ms)));
    forget(*pin);
    *pin = NULL;
    return TERN_OK;
}

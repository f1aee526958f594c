/* Helpers of the exhibits over Tern's cores: a pair of hosts with a hybrid pool, a session that
 * takes every free page, and a data path that writes once more into the pages that it was given.
 * Header only. */
#ifndef TEST_MUSEUM_MUSEUM_H
#define TEST_MUSEUM_MUSEUM_H

#include "museum/textbook.h"
#include "unit/rig/rig_pair.h"

#define HYBRID_ALIGN 64 /* tokens of a page of KV, and between two states of a prompt */

/* Returns a pair whose pools have a group of KV and a recurrent one; at most `peer_bytes` may be on
 * their way at a time. */
static inline struct pair hybrid_pair(uint64_t peer_bytes)
{
    struct rig_options options = OPTIONS_WITH(limits.peer_bytes_in_flight = peer_bytes);
    struct group_layout groups[2] = {rig_group(HYBRID_ALIGN, 512),
                                     rig_recurrent(HYBRID_ALIGN, 128)};
    struct pair p = {.dest = rig_create(&options)};

    options.incarnation = 0x2002;
    p.source = rig_create(&options);
    p.se = rig_engine(p.source, 0, "prefill", 1);
    p.de = rig_engine(p.dest, 0, "decode", 1);
    assert_ok(rig_pool_open(p.source, p.se.conn[0], groups, 2, 1u << 20, &p.sp));
    assert_ok(rig_pool_open(p.dest, p.de.conn[0], groups, 2, 1u << 20, &p.dp));
    rig_link_up(p.dest, 0, p.source, options.limits.peers);
    return p;
}

/* Session `s`, of a namespace of its own, takes the rest of the pool page by page and writes it. */
static inline void takes_what_is_free(struct rig_session *s, uint32_t seed)
{
    const uint32_t tokens = 512, *v = rig_tokens(seed, tokens);

    if (s->ntokens == 0)
        assert_ok(rig_match(s, v, tokens));
    while (rig_run_to(s, v, s->len.allocated + 4) == TERN_OK)
        ;
    assert_true(s->rig->res.err == TERN_POOL_EXHAUSTED || /* or the session has every page */
                s->rig->res.err == TERN_QUOTA);
}

/* The data path writes into every page that a batch on its way names. Returns how many pages. */
static inline uint32_t late_writes(struct rig *rig)
{
    struct rig_job *job;
    uint32_t n = 0;

    for (uint32_t nth = 0; (job = rig_job(rig, RIG_PULL, nth)) != NULL; nth++)
        for (uint32_t i = 0; i < job->n; i++, n++) {
            uint64_t bytes;
            uint8_t *page =
                rig_page(rig, job->pool, job->pages[i].group, job->pages[i].index, &bytes);

            memset(page, 0xee, bytes);
        }
    return n;
}

#endif

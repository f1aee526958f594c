/* Records of transfers in the arena: what leads to a peer, what a tenant fetches from one, pulls
 * and serves; and the buffers of tokens, which sessions have, too. As in arena.h, there is no
 * implicit padding that matters. */
#ifndef CORE_TRANSFER_RECORDS_H
#define CORE_TRANSFER_RECORDS_H

#include "core/arena/list.h"
#include "core/core.h"
#include "core/query.h"

/* Tokens [first, end) in chunks of L from `first`; a chunk is ceil(L / TOKEN_BLOCK) blocks. */
struct token_buf {
    uint32_t align;  /* L */
    uint32_t tenant; /* whose share its blocks and keys are of */
    uint32_t first, end;
    uint32_t cut; /* the lowest end that it was truncated to, since somebody set this */
    uint32_t head,
        tail; /* of its blocks; tail: only while there is a head. The same of its keys: */
    uint32_t keys, keys_tail;
};

struct link {
    uint32_t up, peer;  /* peer: that it leads to, or comes from */
    uint32_t room_kept; /* while pages are asked for: an older transfer waits for room on it */
    uint32_t vacant;    /* 1: of a slot of peers that nobody has */
    uint64_t incarnation, bytes_in_flight;
    uint64_t tenants; /* that are shared with its peer, a bit each */
    uint64_t former;  /* the incarnation before that one, of which all is gone (X6); 0: none */
    struct peer_figures figures; /* of a peer's own slot */
};

struct flow { /* what one tenant fetches from one peer, or from the disk: pull.holder */
    uint64_t bytes_in_flight;
    uint32_t room_kept; /* as a link's */
    uint32_t zero;
};

struct pull_batch {
    uint32_t head, n, used, no;
    uint64_t bytes;
};

struct pull { /* a transfer in */
    uint32_t gen, state;
    struct list_links active;
    uint32_t session, pool, engine, tenant, link;
    uint32_t holder;           /* whose share it is of */
    uint32_t conn;             /* NONE: nobody waits for the answer */
    uint32_t from, to, start;  /* tokens offered; depth at the Fetch */
    uint32_t err, busy;        /* that it is to end with; of BUSY why, one of enum pull_busy */
    uint32_t transfer_regions; /* as of its pool */
    uint32_t retry, next_batch, done_pages, npages;
    uint32_t cursor[GROUPS_MAX]; /* next page to ask for */
    uint32_t cursor_group, cursor_left;
    uint32_t asks;     /* times that the source was asked */
    uint32_t leads;    /* 1: of those of its tenant and link that a busy source put off, it is the
                          one that asks again */
    uint32_t retry_ms; /* as the source said last, within bounds; 0: it was never busy */
    uint32_t history;  /* HISTORY is here already up to this depth: the node is pinned */
    uint32_t history_node;
    uint32_t sent;                 /* ASKED: the source has the tokens up to here */
    uint32_t told;                 /* RUNNING: it has named the pages of the chunks up to here */
    uint32_t untold[GROUPS_MAX];   /* the first page of each list that it has not named yet */
    uint32_t base[GROUPS_MAX];     /* first logical page of each list */
    struct list pages[GROUPS_MAX]; /* not yet published, in logical order */
    /* Where the source's pages are larger the lists have whole spans (transfer/spans.h): so many
     * pages at their beginning and at their end are needed by nobody, and are never published. */
    uint32_t front[GROUPS_MAX], back[GROUPS_MAX];
    uint32_t source_tokens[GROUPS_MAX]; /* of a page there; 0: as many as here, or not yet told */
    struct pull_batch batch[PULL_BATCHES_MAX];
    uint32_t batches; /* that the data path may have: those above, and those of a transfer that was
                         stopped until it is quiet */
    struct serve_id serve;
    struct serve_id given_back; /* the last offer's for which no pair of layouts was to be had */
    uint32_t at_least;  /* tokens that the session is to have at the end; 0: what there is */
    uint32_t awaited;   /* of at_least, what the source was asked for last */
    uint32_t wait_ms;   /* WAITING: the last pause */
    uint32_t prefetch;  /* 1: no decode waits for it */
    uint32_t publishes; /* RUNNING: 1: more of what came is to be published than a step does */
    uint32_t tail;      /* 1: the session still owns what it owned at the Fetch */
    uint32_t chunk;     /* of a fetch from the disk: the chunk that it reads up to, pinned; NONE */
    uint32_t ask;       /* of a fetch that names no peer: the question, until one offers; NONE */
    uint32_t seeks;     /* WAITING: 1: for the answers to that, and `link` is none yet */
    uint32_t zero;
    struct ticket ticket;  /* of a fetch by ticket; id.gen 0: none */
    struct token_buf blob; /* that came with it */
    uint32_t blob_bytes;
    uint32_t asked_pages; /* for operators: again those that came wrong */
    uint32_t follow;      /* 1: its source may still compute: it took its pages before it asked */
    uint32_t told_pages;  /* that the source has named */
    uint32_t handed;      /* what it said of a length that is not the ticket's; or 0 */
    uint32_t said;        /* likewise: of INVALID `differs`, of others `busy`, of struct peer_msg */
    uint32_t wait_above;  /* somebody waits for more than that; wait_conn NONE: nobody does */
    uint32_t wait_conn;
    uint64_t wait_request, wait_trace;
    uint64_t ask_ns, give_up_ns; /* PUT_OFF: not before it asks again; when it ends as BUSY */
    uint64_t wait_until_ns;      /* from then on it takes what the source has */
    uint64_t tail_step;          /* the last that may touch the tail */
    uint64_t request_id, trace_id, arrived_bytes, deadline_ns, started_ns, quarantined_ns;
    uint64_t asked_bytes, taken_bytes; /* likewise; of all pages that were taken for it */
    struct rate rate;                  /* of arrived_bytes */
    struct transfer_times times;
    uint64_t layout_hash; /* of the source's pool, as it said; 0: the same as ours */
};

struct asked {
    uint32_t peer, depth; /* depth: that it has of the first prefix */
};

struct ask {         /* a question to peers */
    uint32_t gen, n; /* n: prefixes that it is about; 0: there is none */
    struct list_links active;
    uint32_t tenant, each;
    uint32_t left; /* prefixes that no peer has whole, as far as is known */
    uint32_t conn; /* of a Blocks that waits for it; NONE: a fetch does */
    uint64_t request_id, trace_id, until_ns;
    uint32_t npeers, answered; /* those that have answered come first, in that order */
    struct asked asked[ASK_PEERS_MAX];
    uint8_t has[BLOCKS_ASKED_MAX]; /* of each prefix: which of them was the first to have it whole,
                                      counted from 1 */
};

struct serve { /* a transfer out */
    uint32_t gen, state;
    struct list_links active;
    uint32_t link, pool, node, wait_node, from, to, history, asked_history, state_from;
    uint32_t holder;        /* whose share it is of */
    uint32_t told;          /* OPEN: the pages of the chunks up to here were named */
    uint32_t least;         /* the peer wants nothing less */
    uint32_t wants;         /* OPEN: 1: the peer asks for those that follow */
    uint32_t served;        /* 1: `handed` is SERVED by it */
    uint32_t follow;        /* 1: the session may still run: see serve_follow.h. Then: */
    uint32_t heard;         /* WALKING: its tokens up to here are the session's */
    uint32_t avail;         /* what may be offered now; all of it: its end, too */
    uint32_t wait_gen;      /* of wait_node */
    uint32_t handed_length; /* to be told with INVALID: see struct peer_msg */
    uint32_t prefetch;      /* 1: the peer said that no decode waits for it */
    uint32_t peer_over;     /* 1: the peer has said how its fetch ended, or is not there any more */
    uint32_t err;           /* what to tell the peer at the end, 0 = nothing */
    struct session_id handed; /* of a fetch by ticket: the session; gen 0: none */
    struct pull_id pull;
    uint64_t trace_id, deadline_ns, started_ns;
    struct transfer_times times;
    uint64_t layout_hash;             /* of the destination's pool; 0: the same as ours */
    uint32_t peer_tokens[GROUPS_MAX]; /* of a page there; 0: as many as here */
};

#endif

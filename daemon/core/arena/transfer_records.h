/* The arena's records of transfers: links to peers, flows (what a tenant fetches from one source),
 * pulls and serves; and the token buffers that sessions have, too. As in arena.h, no implicit
 * padding matters. */
#ifndef CORE_TRANSFER_RECORDS_H
#define CORE_TRANSFER_RECORDS_H

#include "core/arena/list.h"
#include "core/core.h"
#include "core/query.h"

/* The holder of the shares that the records of a chain of tokens count against. */
struct token_owner {
    uint16_t tenant;
    uint16_t disk; /* 1: they are in the index of the disk */
};

/* Tokens [first, end) in chunks of L from `first`; a chunk is ceil(L / TOKEN_BLOCK) blocks. */
struct token_buf {
    uint32_t align; /* L */
    struct token_owner owner;
    uint32_t first, end;
    uint32_t cut;        /* lowest end that it was truncated to, since this was last set */
    uint32_t head, tail; /* of its blocks; tail: only while there is a head. Below: of its keys */
    uint32_t keys, keys_tail;
};

struct link {
    uint32_t up, peer;  /* peer: at its other end */
    uint32_t room_kept; /* while pages are requested: 1: an older transfer waits for room on it */
    uint32_t vacant;    /* 1: its peer slot is vacant */
    uint64_t incarnation, bytes_in_flight;
    uint64_t tenants; /* tenants shared with its peer, one bit each */
    uint64_t former;  /* the incarnation before, of which nothing is left (X6); 0: none */
    struct peer_figures figures; /* of a peer's own slot */
};

struct flow { /* what one tenant fetches from one peer or the disk: pull.holder */
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
    uint32_t holder;          /* the holder in whose share it counts */
    uint32_t from, to, start; /* tokens offered; depth at the Fetch */
    uint32_t err, busy; /* err: to end with; busy: the cause if that is BUSY, enum pull_busy */
    uint32_t transfer_regions; /* as in its pool */
    uint32_t retry, next_batch, done_pages, npages;
    uint32_t cursor[GROUPS_MAX]; /* next page to request */
    uint32_t cursor_group, cursor_left;
    uint32_t asks;  /* requests sent to the source */
    uint32_t leads; /* 1: of the pulls of its tenant and link that a busy source put off, this one
                       asks again */
    uint32_t retry_ms; /* the source's last value, within bounds; 0: it was never busy */
    uint32_t history;  /* HISTORY is here already up to this depth, pinned by its node: */
    uint32_t history_node;
    uint32_t sent;               /* ASKED: the source has the tokens up to here */
    uint32_t told;               /* RUNNING: the source named the pages of the chunks up to here */
    uint32_t untold[GROUPS_MAX]; /* the first page of each list that the source has not named */
    uint32_t base[GROUPS_MAX];   /* first logical page of each list */
    struct list pages[GROUPS_MAX]; /* not yet published, in logical order */
    /* Where the source's pages are larger, the lists have whole spans (transfer/spans.h): this many
     * pages at the front and at the back of a list are not needed and never published. */
    uint32_t front[GROUPS_MAX], back[GROUPS_MAX];
    uint32_t source_tokens[GROUPS_MAX]; /* tokens of a source page; 0: as here, or not known yet */
    struct pull_batch batch[PULL_BATCHES_MAX];
    uint32_t batches; /* batches that the data path may have: those above, and those of a stopped
                         transfer until it is quiet */
    struct serve_id serve;
    struct serve_id given_back; /* serve of the last offer without a free pair of layouts */
    uint32_t at_least;  /* tokens that the session should have at the end; 0: as many as exist */
    uint32_t awaited;   /* the part of at_least that was last requested from the source */
    uint32_t wait_ms;   /* WAITING: the last pause */
    uint32_t prefetch;  /* 1: no decode waits for it */
    uint32_t publishes; /* RUNNING: 1: more pages arrived than one step publishes */
    uint32_t tail;      /* 1: the session still owns the pages that it owned at the Fetch */
    uint32_t chunk;     /* fetch from the disk: the chunk that it reads up to, pinned; NONE */
    uint32_t ask;       /* fetch without a named peer: the question, until a peer offers; NONE */
    uint32_t seeks;     /* WAITING: 1: for the answers to `ask`; `link` is not set yet */
    uint32_t zero;
    struct ticket ticket;  /* fetch by ticket; id.gen 0: none */
    struct token_buf blob; /* that came with the ticket */
    uint32_t blob_bytes;
    uint32_t asked_pages; /* for operators: pages that arrived corrupt count again */
    uint32_t follow; /* 1: the source may still compute: the pull took its pages before it asked */
    uint32_t told_pages; /* pages that the source has named */
    uint32_t handed;     /* the source's `handed` where the length is not the ticket's; else 0 */
    uint32_t said;       /* also from struct peer_msg: INVALID: `differs`; others: `busy` */
    uint32_t wait_above; /* the request of `wait` waits for more tokens than this */
    struct reply_to reply, wait;
    uint64_t ask_ns, give_up_ns; /* PUT_OFF: the earliest next request; when it ends as BUSY */
    uint64_t wait_until_ns;      /* from then on it accepts what the source has */
    uint64_t tail_step;          /* the last step that may touch the tail */
    uint64_t arrived_bytes, deadline_ns, started_ns, quarantined_ns;
    uint64_t asked_bytes, taken_bytes; /* asked: for operators; taken: all its pages */
    struct rate rate;                  /* of arrived_bytes */
    struct transfer_times times;
    uint64_t layout_hash; /* of the source's pool, as reported; 0: the same as ours */
};

struct asked {
    uint32_t peer, depth; /* depth: how much of the first prefix the peer has */
};

struct ask {         /* a question to peers */
    uint32_t gen, n; /* n: prefixes in the question; 0: free record */
    struct list_links active;
    uint32_t tenant, each;
    uint32_t left;         /* prefixes that no peer is known to have whole */
    struct reply_to reply; /* of a Blocks request; gen 0: a fetch waits */
    uint64_t until_ns;
    uint32_t npeers, answered; /* those that have answered come first, in that order */
    struct asked asked[ASK_PEERS_MAX];
    uint8_t has[BLOCKS_ASKED_MAX]; /* each prefix: which of `asked` first had it whole, from 1 */
};

struct serve { /* a transfer out */
    uint32_t gen, state;
    struct list_links active;
    uint32_t link, pool, node, wait_node, from, to, history, asked_history, state_from;
    uint32_t holder;          /* the holder in whose share it counts */
    uint32_t told;            /* OPEN: the pages of the chunks up to here were named */
    uint32_t least;           /* the least that the peer accepts */
    uint32_t wants;           /* OPEN: 1: the peer asks for the pages that follow */
    uint32_t served;          /* 1: `handed` is SERVED by it */
    uint32_t follow;          /* 1: the session may still run: see serve_record.h. Then: */
    uint32_t heard;           /* WALKING: the tokens up to here match the session's */
    uint32_t avail;           /* what may be offered now; if that is all, its end too */
    uint32_t wait_gen;        /* of wait_node */
    uint32_t handed_length;   /* to send with INVALID: see struct peer_msg */
    uint32_t prefetch;        /* 1: the peer reported that no decode waits for it */
    uint32_t peer_over;       /* 1: the peer reported the end of its fetch, or is gone */
    uint32_t err;             /* what to send to the peer at the end; 0: nothing */
    struct session_id handed; /* fetch by ticket: the session; gen 0: none */
    struct pull_id pull;
    uint64_t trace_id, deadline_ns, started_ns;
    struct transfer_times times;
    uint64_t layout_hash;             /* of the destination's pool; 0: the same as ours */
    uint32_t peer_tokens[GROUPS_MAX]; /* tokens of a page at the peer; 0: as here */
};

#endif

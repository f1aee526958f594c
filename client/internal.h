/* What the files of libtern share: the connection object and the one way to make a call. Not
 * installed.
 *
 * A request id is a running number << 8 | slot: the slot is the place in `pending` of a submitted
 * request, or ID_SYNC for a call that waits. So an answer finds its request without a search, ids
 * ascend as the wire wants it, and an answer to a call that ran into its deadline is known by its
 * number and dropped. */
#ifndef CLIENT_INTERNAL_H
#define CLIENT_INTERNAL_H

#include <sys/types.h>

#include "conn.h"
#include "proto/codec.h"
#include "quick.h"
#include "tern.h"

#define ID_SLOT_BITS 8
#define ID_SYNC      0xffu
#define NO_SLOT      0xffu

#define TRACE_BYTES 11u /* of the field that carries a trace id, at most */

#define LEAVE_DEADLINE_MS 1000 /* how long tern_destroy waits for the daemon to take note */

/* The control page: u64 done_step of rank r at r * 64, u64 incarnation behind the last rank's. */
#define CONTROL_BYTES          4096u
#define CONTROL_RANK_STRIDE    64u
#define CONTROL_INCARNATION_AT (TERN_RANKS_MAX * CONTROL_RANK_STRIDE)

enum member_state {
    MEMBER_NONE = 0, /* not joined: may only ping and ask for statistics */
    MEMBER_SCHEDULER,
    MEMBER_RANK, /* has a done_step of its own */
};

enum pending_state {
    PENDING_FREE = 0,
    PENDING_WAITING, /* submitted, no answer yet */
    PENDING_KEPT,    /* its answer came while a synchronous call waited; body is owned */
    PENDING_STREAM,  /* a subscription: answers come until it ends; `sub` is owned */
};

struct subscription; /* subscribe.c */

struct pending {
    enum pending_state state;
    uint16_t type; /* of the answer */
    uint8_t next;  /* in the list of kept answers */
    uint32_t nops; /* of a step: results that its answer may have */
    uint64_t id, cookie;
    uint8_t *body;
    uint32_t body_bytes;
    struct subscription *sub;
};

struct tern {
    struct conn conn;
    pid_t pid; /* whose it is: a forked child may only let go of it */
    uint64_t incarnation, next_number;
    uint64_t trace_id; /* that requests carry; 0: none */
    enum member_state member;
    uint32_t rank;
    uint64_t last_step; /* that tern_done_step published: it never goes back */
    struct tern_pool *pools;

    struct budget budget; /* decodes what is not on the hot path */
    struct quick_store store;
    struct tern_result *results; /* TERN_STEP_OPS_MAX, of the answer that tern_poll hands out */
    char *json; /* of the last tern_stats or tern_admin; grows up to TERN_ADMIN_JSON_MAX */
    size_t json_cap;
    char text[QUICK_TEXT_MAX];

    struct pending pending[TERN_INFLIGHT_MAX];
    uint64_t pending_free; /* bit i: slot i is PENDING_FREE */
    uint8_t kept_head, kept_tail;
};

struct tern_pool {
    struct tern *owner;
    struct tern_pool *next;
    uint8_t *base;
    uint64_t bytes;
    uint8_t *control;
};

/* A call under way: made by call_start, used up by call_wait. */
struct call {
    uint64_t id, deadline_ns;
    uint32_t
        sleep_ms; /* what one receive may take: all of the deadline, 0 once some of it has passed
                   */
    uint16_t reply_type;
};

/* Sets the text and returns err. NULL: what the error table says. */
enum tern_err set_error(struct tern *t, enum tern_err err, const char *text);

uint64_t new_id(struct tern *t, uint32_t slot);
/* What a request's body needs in the send buffer. */
uint64_t with_trace(const struct tern *t, uint64_t body);

/* PEER_LOST where nothing can be asked any more. */
enum tern_err call_start(struct tern *t, uint16_t type, uint32_t deadline_ms, struct call *ret);
/* Room in the send buffer, waiting for it until the call's deadline. */
enum tern_err call_room(struct tern *t, struct call *call, uint64_t body, uint8_t **ret_frame);
/* Completes the frame in that room, by the trace id and the header, and queues it. */
void call_queue(struct tern *t, uint8_t *frame, uint16_t type, uint64_t id, uint64_t session,
                uint64_t body);
/* Queues a message that has no writer of its own in quick.h. */
enum tern_err call_put(struct tern *t, struct call *call, uint64_t session,
                       const ProtobufCMessage *msg);
/* Sends what is queued, waits for the answer; body borrowed until the connection receives again. */
enum tern_err call_wait(struct tern *t, struct call *call, const uint8_t **ret_body,
                        uint32_t *ret_n);
/* The same, decoded, its status taken: the error is the daemon's. The message is borrowed until the
 * next call. */
enum tern_err call_answer(struct tern *t, struct call *call, const ProtobufCMessage **ret);
/* start, put and answer in one. */
enum tern_err call_whole(struct tern *t, uint16_t type, uint64_t session,
                         const ProtobufCMessage *msg, uint32_t deadline_ms,
                         const ProtobufCMessage **ret);

/* A frame that no synchronous call waits for: keeps the answer of a submitted request, drops that
 * of a call that gave up, ends the connection for anything else. */
void async_take(struct tern *t, const struct frame_header *h, const uint8_t *body);
void async_finish(struct tern *t); /* frees what was kept */
/* Takes a slot and room for the body. BUSY: neither may be waited for here. */
enum tern_err async_submit(struct tern *t, uint64_t body, uint32_t *ret_slot, uint8_t **ret_frame);
/* The body is in place: from now on the request is under way. A connection that is lost here is
 * told by tern_poll. */
void async_submitted(struct tern *t, uint32_t slot, uint8_t *frame, uint16_t type, uint64_t session,
                     uint64_t body, uint32_t nops, uint64_t cookie);
/* Ends a subscription's part in the table. */
void async_end(struct tern *t, uint32_t slot);

/* An answer of a subscription: kept with what is there already. False: it is no such answer. */
bool subscription_take(struct tern *t, struct pending *p, const uint8_t *body, uint32_t n);
/* What is kept, as an answer; borrowed until the next one is taken. Returns its err: not OK is the
 * end. */
enum tern_err subscription_give(struct tern *t, struct pending *p, struct tern_answer *ret);
void subscription_free(struct subscription *sub);

void pool_unmap_all(struct tern *t);
/* Not in a forked child: the connection, the engine and the mappings are its parent's. */
bool is_owner(const struct tern *t);

/* A namespace as a message that borrows its strings. INVALID with a text. */
enum tern_err put_namespace(struct tern *t, const struct tern_namespace *ns,
                            Tern__Wire__Namespace *ret);

/* INVALID with a text: lists that point nowhere or are longer than a request may be. */
enum tern_err check_tokens(struct tern *t, const struct tern_tokens *tokens);
enum tern_err check_ops(struct tern *t, const struct tern_op *ops, uint32_t n);
enum tern_err check_peer(struct tern *t, const char *peer);

#endif

/* Shared by the files of libtern: the connection object and the functions that make a call. Not
 * installed. Each file calls only files above it in this list:
 *   use           the thread in a call: one at a time, of the process that connected
 *   socket        frames, in and out
 *   sender        the thread that sends for a lease
 *   send          a request into the send buffer
 *   check         checks of arguments
 *   leased        which sessions are in a lease, so that no other call touches them
 *   pieces        token lists that are longer than a request
 *   changes       changes that a subscription keeps
 *   quick_*       bodies of the hot path
 *   words         texts of refused requests
 *   stock         answers to what a lease has submitted
 *   pending       submitted requests, and answers that wait to be polled
 *   call          one request and its answer
 *   device        memory of GPUs
 *   steps         publishing of steps in the control page
 *   brought       checksums that libtern leaves for the daemon
 *   async         submitting and polling
 *   request, ops, batch, lease, lease_submit, session, handoff, turn, pool, record, subscribe,
 *   chain         the calls of tern.h
 *   tern          connecting and leaving
 *   block_lane    a thread's copies to and from pages on a GPU
 *   block_copy    copies of values between the caller's memory and pages
 *   blocks_ask    lists of keys, and the requests about them
 *   blocks_sessions  sessions that take pages or pin them
 *   blocks_get, blocks_put, blocks_pin, blocks  the calls of tern_blocks.h
 *   blocks_queue  calls made by a thread
 *
 * A request id is a running number << 8 | slot: the slot is the place in `pending` of a submitted
 * request, or ID_SYNC for a call that waits. So an answer finds its request without a search, ids
 * ascend as the wire requires, and an answer to a call that timed out is recognised by its number
 * and dropped. */
#ifndef CLIENT_INTERNAL_H
#define CLIENT_INTERNAL_H

#include <stdatomic.h>

#include "proto/codec.h"
#include "quick.h"
#include "socket.h"
#include "tern.h"

#define ID_SLOT_BITS 8
#define ID_SYNC      0xffu
#define NO_SLOT      0xffu

#define TRACE_BYTES 11u /* the most bytes of the field that carries a trace id */

#define DEVICE_NAME_MAX 47 /* bytes */

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

#define UNHELD_MAX 64 /* turns and sessions to be ended, which wait for room in the send buffer */

#define LEAVE_DEADLINE_MS 1000 /* how long tern_destroy waits for the daemon's answer */

/* The control page: u64 done_step of rank r at r * 64; behind the last rank's, u64 incarnation;
 * behind that, u64 step that a process waits for, 0: none. */
#define CONTROL_BYTES          8192u
#define CONTROL_RANK_STRIDE    64u
#define CONTROL_INCARNATION_AT (TERN_RANKS_MAX * CONTROL_RANK_STRIDE)
#define CONTROL_WANTED_AT      (CONTROL_INCARNATION_AT + CONTROL_RANK_STRIDE)

enum member_kind {
    MEMBER_NONE = 0, /* not joined: may only ping and request statistics */
    MEMBER_SCHEDULER,
    MEMBER_RANK, /* has a done_step of its own */
};

struct subscription; /* changes.c */
struct sender;       /* sender.c */
struct stream_steps; /* steps.c */
struct stream_page;  /* steps.c */
struct brought;      /* brought.c */

/* The part of a request that the text of its refusal needs. `kind` is a value of enum
 * client_op_kind or of this enum. */
enum {
    ASKED_NOTHING = 0,
    ASKED_MATCH = CLIENT_UNLEASE + 1,
    ASKED_FETCH,
    ASKED_FETCH_WAIT,
    ASKED_RECOVER,
    ASKED_RETRACT,
    ASKED_COUNT
};

struct asked {
    uint8_t kind;
    tern_session session;                     /* 0: none */
    uint32_t length, written, appended, base; /* tokens */
};

struct pending {
    enum pending_state state;
    uint16_t type;       /* of the answer */
    uint8_t next;        /* in the list of kept answers */
    uint32_t nops;       /* results that its answer may have: one, except for a batch */
    struct asked *asked; /* owned: one for each operation of a batch; else NULL */
    uint64_t id, cookie;
    uint8_t *body;
    uint32_t body_bytes;
    struct subscription *sub;
    struct tern_lease *lease; /* borrowed: the lease that made the request; never polled; NULL:
                                 none */
    uint32_t lease_part;      /* the part of that lease: see lease.h */
};

/* A turn or a session whose caller timed out before the answer arrived. */
struct unheld {
    uint64_t handle;
    bool is_session;
};

/* The tenant's record memory; base NULL: not mapped yet. */
struct records {
    uint8_t *base;
    uint64_t bytes;
};

struct tern {
    struct client_socket socket;
    _Atomic uintptr_t *user; /* owned, on a page of its own: use.c */
    uint64_t incarnation, next_number;
    uint64_t trace_id; /* carried by requests; 0: none */
    enum member_kind member;
    uint32_t rank;
    uint64_t last_step; /* the last step published or put into a stream; never decreases */
    struct stream_steps *by_stream; /* owned; NULL: no step went into a stream */
    bool kernels_left; /* a mapping has ended, and kernels of brought.c, or copies of block_lane.c,
                          may still use it: this process never reports that it has left */
    struct tern_pool *pools;
    struct records records;
    struct tern_lease *leases; /* owned */
    struct sender *sender;     /* owned: while there is a lease; else NULL */
    int bell; /* owned; -1 until a pool is mapped; a write to it wakes the daemon */

    uint32_t poll_ns; /* how long call_wait polls before it sleeps; 0: not at all */
    /* The number of calls that sleep at once after a vain poll, and how many of them have done
     * so. */
    uint32_t polls_skip, polls_skipped;

    struct budget budget; /* for decoding of messages off the hot path */
    struct quick_store store;
    struct tern_result *results; /* TERN_BATCH_OPS_MAX of the batch that was run last, or of the
                                    answer that tern_poll returned last; behind them as many of a
                                    lease's Step that is answered during a batch */
    struct asked *asked;         /* as many: the operations of these results */
    uint32_t nresults;           /* results of a batch, for tern_error_text */
    char *json; /* answer to the last tern_stats or tern_admin; grows up to TERN_ADMIN_JSON_MAX */
    size_t json_cap;
    char text[QUICK_TEXT_MAX], words[QUICK_TEXT_MAX]; /* words: text of one result */

    struct pending pending[TERN_INFLIGHT_MAX];
    uint64_t pending_free; /* bit i: slot i is PENDING_FREE */
    uint8_t kept_head, kept_tail;

    struct unheld unheld[UNHELD_MAX]; /* begun without an owner, and not ended yet */
    uint32_t nunheld;
};

struct tern_pool {
    struct tern *owner;
    struct tern_pool *next;
    struct tern_pool_info info;
    struct device_map *device; /* owned: the GPU mapping of info.base; NULL: memory of the host */
    uint8_t *control;
    struct stream_page *stream_page; /* owned; NULL: no step went into a stream */
    struct brought *brought;         /* owned; NULL: no memory for checksums */
    bool copies_left;                /* a device may copy to and from it until the process ends */
};

/* ---- use.c ---- */

/* INTERNAL: no memory. */
enum tern_err use_create(struct tern *t);
void use_finish(struct tern *t);
/* Returns false in a forked child: the connection, the engine and the mappings are its parent's. */
bool is_owner(const struct tern *t);
/* The first line of each call of tern.h. DAEMON_LOST: in a forked child. CONFLICT: another thread
 * is in a call. use_refused has the text of both; the connection is unchanged. */
#define ENTER(connection)                                                                          \
    struct tern *entered_ __attribute__((cleanup(use_end))) = NULL;                                \
    TRY(use_begin((connection), &entered_))
enum tern_err use_begin(struct tern *t, struct tern **ret);
void use_end(struct tern **t);
/* Returns why this thread's last call on the connection was refused; NULL: it was not. */
const char *use_refused(const struct tern *t);

/* ---- sender.c ---- */

/* Starts the thread that sends the frames left to it. INTERNAL: it cannot be started (errno). */
enum tern_err sender_start(struct client_socket *c, struct sender **ret);
/* Ends the thread and sets *s to NULL; NULL is allowed. The caller sends the frames that remain. In
 * a forked child, which has no such thread, the call only frees. */
void sender_stop(struct sender **s, bool is_child);
/* Notifies the thread of a new frame. The call never blocks, and makes a system call only if the
 * thread has found nothing for SENDER_QUIET_LOOKS looks. */
void sender_told(struct sender *s);

/* ---- send.c ---- */

/* A request being written into the send buffer: the writer of the body ends where the room ends. */
struct outgoing {
    uint8_t *frame;
    struct writer body;
};

/* Sets the text and returns err. NULL: the text of the error table. */
enum tern_err set_error(struct tern *t, enum tern_err err, const char *text);
/* Sets also the numbers of the text, for tern_error_numbers. */
enum tern_err set_error_numbers(struct tern *t, enum tern_err err, const char *text,
                                const uint64_t numbers[2]);
/* Ends the connection because the daemon sent an invalid message. Returns err. */
enum tern_err not_an_answer(struct tern *t, enum tern_err err);
uint64_t new_id(struct tern *t, uint32_t slot);
/* Reserves room for a body of `body` bytes and the trace id. BUSY: no room now. INVALID, with a
 * text: the body never fits. */
enum tern_err send_room(struct tern *t, size_t body, struct outgoing *ret);
/* Completes the frame with the trace id and the header, and queues it. */
void send_queue(struct tern *t, struct outgoing *o, uint16_t type, uint64_t id, uint64_t session);
/* For a message without a writer of its own in quick.h; an empty message is padded. */
size_t message_size(const ProtobufCMessage *msg);
void put_whole(struct writer *w, const ProtobufCMessage *msg);

/* ---- check.c ---- */

/* INVALID with a text: a list is NULL or longer than a request may be. */
enum tern_err check_tokens(struct tern *t, const struct tern_tokens *tokens);
/* A call that frees pages must name a step. */
enum tern_err check_step(struct tern *t, uint64_t step);
/* A wait must name a step that a rank can pass. */
enum tern_err check_wait(struct tern *t, uint64_t step);
enum tern_err check_op(struct tern *t, const struct client_op *op);
/* INVALID with the names of two fields that exclude each other. */
enum tern_err check_fetch(struct tern *t, const struct tern_fetch *fetch);
enum tern_err check_ticket(struct tern *t, const char *ticket);
/* INVALID with the name of the group: the layout is wrong for any configuration of the daemon. */
enum tern_err check_layout(struct tern *t, const struct tern_layout *layout);
/* Makes a message of a namespace, which borrows its strings. INVALID with a text. */
enum tern_err put_namespace(struct tern *t, const struct tern_namespace *ns,
                            Tern__Wire__Namespace *ret);

/* ---- leased.c ---- */

/* CONFLICT: the session is in a lease. BUSY: it has left a lease, and the removal is not submitted
 * yet. Both with a text. */
enum tern_err check_leased(struct tern *t, tern_session s);

/* ---- pieces.c ---- */

#define TOKENS_ONE_PIECE 16384u /* a daemon accepts that many at once, for any pool */

/* Returns the tokens of the list from [at] on that fit into one request, at most `most`; borrows
 * its arrays. */
struct tern_tokens piece_of(const struct tern *t, const struct tern_tokens *all, uint32_t at,
                            uint32_t most);
/* Returns the number of a piece's tokens that the daemon took. `taken`: from its answer; 0: all. */
uint32_t piece_taken(const struct tern_tokens *piece, uint32_t taken);

/* ---- changes.c ---- */

struct subscription *subscription_new(void); /* NULL: no memory */
void subscription_free(struct subscription *sub);
/* Keeps the changes of a subscription's answer behind those already kept. Returns false if the body
 * is no such answer, or there is no memory. */
bool subscription_take(struct tern *t, struct pending *p, const uint8_t *body, uint32_t n);
/* Returns the kept changes as an answer, borrowed until the next answer is taken. Returns its err:
 * any but OK ends the subscription. */
enum tern_err subscription_give(struct tern *t, struct pending *p, struct tern_answer *ret);

/* ---- stock.c ---- */

/* Applies an answer to a lease's request. Returns false if it is no such answer, or without
 * memory. */
bool stock_take(struct tern *t, struct pending *p, const uint8_t *body, uint32_t n);

/* ---- pending.c ---- */

/* Takes a free slot and returns the number of its request, whose answer has one result. sub: NULL,
 * or consumed. */
uint64_t pending_begin(struct tern *t, uint32_t slot, uint16_t type, uint64_t cookie,
                       struct subscription *sub);
void pending_free(struct tern *t, uint32_t slot);
void pending_end(struct tern *t, uint32_t slot); /* of a subscription that is no longer kept */
/* Drops the lease from its requests under way, on a connection that is lost. */
void pending_forget(struct tern *t, const struct tern_lease *lease);
void pending_finish(struct tern *t); /* frees what the whole table owns */
/* Returns the submitted request that this frame answers, or NULL. */
struct pending *pending_find(struct tern *t, const struct frame_header *h);
/* Takes a frame that no synchronous call waits for: keeps the answer to a submitted request, or
 * drops the frame. */
void pending_take(struct tern *t, const struct frame_header *h, const uint8_t *body);
/* Drops the answer to a call that timed out, and ends a turn or a session that the answer names. A
 * frame that answers no request ends the connection. */
void pending_drop(struct tern *t, const struct frame_header *h, const uint8_t *body);
/* Ends the turns and sessions without an owner, as far as the send buffer has room. Not while a
 * call has a request id that is not sent yet, because ids must ascend. */
void pending_end_unheld(struct tern *t);
/* Removes the oldest kept answer from the list and returns its slot; NO_SLOT: there is none. */
uint32_t pending_kept(struct tern *t);

/* ---- words.c ---- */

uint8_t asked_of(uint16_t type); /* for a request of the hot path, by its frame type */
struct asked asked_op(const struct client_op *op);
/* Sets t->text for a result: keeps the daemon's own text there, or replaces it if it is empty or
 * the numbers give more detail. Returns the error of the result. */
enum tern_err said(struct tern *t, const struct asked *a, const struct tern_result *r);
#define WORDS_WHY_MAX 160 /* bytes of the rule that a request broke, with the NUL */
/* Writes only that rule, for a caller that reports the numbers in a sentence of its own; if no rule
 * is known, the meaning of the error. */
void words_why(const struct asked *a, const struct tern_result *r, char ret[WORDS_WHY_MAX]);
/* Returns the text that tern_error_text returns for a connection. */
const char *error_text(struct tern *t, const struct tern_result *result);
/* Appends to the daemon's text which handle is GONE. */
void say_handle(struct tern *t, tern_session s);
/* Sets t->text for an answer to a Retract without a text: numbers of pages give more detail than
 * the error table. */
enum tern_err said_retracted(struct tern *t, enum tern_err err, const struct tern_retracted *away);

struct call;

/* ---- ops.c ---- */

/* ops_send sends operations in a call that was begun; ops_take takes their results: t->results,
 * *ret_done of them, or 0 after an error. */
enum tern_err ops_send(struct tern *t, const struct client_op *ops, uint32_t n, struct call *call);
enum tern_err ops_take(struct tern *t, const struct client_op *ops, uint32_t n, struct call *call,
                       uint32_t *ret_done);

/* ---- batch.c ---- */

/* The halves of tern_batch_run, for a caller that does other work between them. The batch is
 * unchanged until its answer is taken; answers are taken in the order of the batches. `pieces`: 1
 * if another batch may be sent before the answer is taken, or else CALL_PIECES_MAX. With 1 the
 * caller repeats an operation that continues. */
enum tern_err batch_send(struct tern_batch *b, uint32_t deadline_ms, uint32_t pieces,
                         struct call *ret);
enum tern_err batch_take(struct tern_batch *b, struct call *call,
                         const struct tern_result **ret_results, uint32_t *ret_done);

/* ---- call.c ---- */

/* A call under way: made by call_start, used up by call_wait. */
struct call {
    uint64_t id, deadline_ns;
    uint32_t sleep_ms; /* most time of one receive: the deadline, 0 once some of it has passed */
    uint16_t reply_type;
    uint32_t pieces; /* requests that the call may still send, including this one */
};

#define CALL_PIECES_MAX 4096u

/* Begins a call. DAEMON_LOST: the connection is lost. */
enum tern_err call_start(struct tern *t, uint16_t type, uint32_t deadline_ms, struct call *ret);
/* Returns the time at which a call that begins now times out. */
uint64_t deadline_at(uint32_t deadline_ms);
/* Begins a request that is one of several under one deadline, a time of the clock of
 * client_socket_now_ns. TIMED_OUT, with a text: the deadline has passed. */
enum tern_err call_start_by(struct tern *t, uint16_t type, uint64_t deadline_ns, struct call *ret);
/* Begins the call anew if one step of the daemon was too short for the request and the answer
 * allows it to continue. Returns true if the request must be sent again. */
bool call_again(struct tern *t, enum tern_err err, struct call *call);
/* Queues the request, waiting for room in the send buffer until the call's deadline. */
enum tern_err call_put(struct tern *t, struct call *call, uint64_t session,
                       const ProtobufCMessage *msg);
enum tern_err call_put_quick(struct tern *t, struct call *call, const struct quick_request *q);
/* call_start, put and wait in one: the body of the answer, borrowed like that of call_wait. */
enum tern_err call_quick(struct tern *t, const struct quick_request *q, uint32_t deadline_ms,
                         const uint8_t **ret_body, uint32_t *ret_n);
/* Sends the queued frames and waits for the answer; body borrowed until the next receive. */
enum tern_err call_wait(struct tern *t, struct call *call, const uint8_t **ret_body,
                        uint32_t *ret_n);
/* Waits as call_wait does, decodes the answer and returns the error of its status. The message is
 * borrowed until the next call. */
enum tern_err call_answer(struct tern *t, struct call *call, const ProtobufCMessage **ret);
/* A call whose answer carries descriptors: with OK the caller owns them, else they are closed. */
struct call_fds {
    int v[CLIENT_FDS_MAX];
    uint32_t n; /* 1 or more */
};
enum tern_err call_whole_fds(struct tern *t, uint16_t type, const ProtobufCMessage *msg,
                             uint64_t until_ns, struct call_fds *ret_fds,
                             const ProtobufCMessage **ret);
/* Checks that n descriptors arrived. MALFORMED, with a text: their number differs, and all are
 * closed. */
enum tern_err call_fds_are(struct tern *t, const struct call_fds *fds, uint32_t n);
/* Returns the error of an answer, from the Status in field 1 of each, and keeps its text. */
enum tern_err call_status(struct tern *t, const ProtobufCMessage *msg);
/* start, put and answer in one. */
enum tern_err call_whole(struct tern *t, uint16_t type, uint64_t session,
                         const ProtobufCMessage *msg, uint32_t deadline_ms,
                         const ProtobufCMessage **ret);

/* Takes the frames that have arrived, and keeps answers that no call waits for. BUSY: no more. */
enum tern_err call_take(struct tern *t);
/* Waits for frames, takes them as call_take does, and sends the queued ones. TIMED_OUT: the
 * deadline has passed. */
enum tern_err call_round(struct tern *t, uint64_t deadline_ns);

/* ---- async.c ---- */

/* Finds a free slot of the table and room for the body. BUSY: one is missing; it does not wait. */
enum tern_err async_room(struct tern *t, size_t body, struct outgoing *ret);
/* Queues the request whose body is written, and consumes `sub`. If the connection is lost here,
 * tern_poll reports it. */
struct pending *async_submit(struct tern *t, struct outgoing *o, uint16_t type, uint64_t session,
                             uint64_t cookie, struct subscription *sub);
/* The same two functions for requests of a lease: they send nothing and leave that to the thread of
 * sender.c. BUSY, with a text: there is no room now. */
enum tern_err async_room_left(struct tern *t, size_t body, struct outgoing *ret);
struct pending *async_leave(struct tern *t, struct outgoing *o, uint16_t type);
/* Submits a request of the hot path. asked: NULL, or one for each of its n operations, consumed
 * when the call returns OK. */
enum tern_err async_quick(struct tern *t, const struct quick_request *q, struct asked *asked,
                          uint32_t n, uint64_t cookie);

/* Returns the content of the answer to a Store. */
struct tern_stored stored_of(const ProtobufCMessage *msg);

/* ---- pool.c ---- */

/* Opens a pool as tern_pool_open does. shared: an existing pool of that layout, mapped by engines
 * and of any size, is accepted.
 */
enum tern_err pool_open_as(struct tern *t, const struct tern_layout *layout, bool shared,
                           uint32_t deadline_ms, uint64_t *ret_pool, uint32_t *ret_align_tokens);
void pool_unmap_all(struct tern *t);
/* Maps memory of the daemon, for this process and not for its children. MALFORMED: the descriptor
 * does not have that range. */
enum tern_err map_shared(int fd, uint64_t offset, uint64_t bytes, uint8_t **ret);

/* ---- lease_submit.c ---- */

void leases_free_all(struct tern *t);

/* ---- record.c ---- */

void records_unmap(struct tern *t);

#endif

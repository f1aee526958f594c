/* What the files of libtern share: the connection object and the ways to make a call. Not
 * installed. Each file calls those above it in this list and never one below:
 *   use           who is in a call: one thread of the process that connected
 *   socket        frames, in and out
 *   sender        the thread that sends for a lease
 *   send          a request into the send buffer
 *   check         what may be asked for
 *   leased        which sessions are in a lease, so that no other call touches them
 *   pieces        token lists that are longer than a request
 *   changes       what a subscription keeps
 *   quick_*       bodies of the hot path
 *   words         why a request was refused
 *   stock         answers to what a lease has submitted
 *   pending       what was submitted, and answers that wait to be polled
 *   call          one request and its answer
 *   device        memory of GPUs
 *   steps         steps on their way into the control page
 *   brought       checksums that a device leaves for the daemon
 *   async         submitting and polling
 *   request, ops, batch, lease, lease_submit, session, handoff, turn, pool, record, subscribe,
 *   chain         the calls of tern.h
 *   tern          connecting and leaving
 *   block_lane    the way of a thread to pages on a GPU
 *   block_copy    values between the caller's memory and pages
 *   blocks_ask    lists of keys, and the requests about them
 *   blocks_sessions  sessions for what takes pages or pins them
 *   blocks_get, blocks_put, blocks_pin, blocks  the calls of tern_blocks.h
 *   blocks_queue  the same by a thread
 *
 * A request id is a running number << 8 | slot: the slot is the place in `pending` of a submitted
 * request, or ID_SYNC for a call that waits. So an answer finds its request without a search, ids
 * ascend as the wire wants it, and an answer to a call that ran into its deadline is known by its
 * number and dropped. */
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

#define TRACE_BYTES 11u /* of the field that carries a trace id, at most */

#define DEVICE_NAME_MAX 47 /* bytes */

#define UNHELD_MAX 64 /* turns and sessions that wait for room in the send buffer, to be ended */

#define LEAVE_DEADLINE_MS 1000 /* how long tern_destroy waits for the daemon to take note */

/* The control page: u64 done_step of rank r at r * 64; u64 incarnation behind the last rank's, and
 * u64 step that somebody waits for behind that, 0 for none. */
#define CONTROL_BYTES          8192u
#define CONTROL_RANK_STRIDE    64u
#define CONTROL_INCARNATION_AT (TERN_RANKS_MAX * CONTROL_RANK_STRIDE)
#define CONTROL_WANTED_AT      (CONTROL_INCARNATION_AT + CONTROL_RANK_STRIDE)

enum member_kind {
    MEMBER_NONE = 0, /* not joined: may only ping and ask for statistics */
    MEMBER_SCHEDULER,
    MEMBER_RANK, /* has a done_step of its own */
};

struct subscription; /* changes.c */
struct sender;       /* sender.c */
struct stream_steps; /* steps.c */
struct stream_page;  /* steps.c */
struct brought;      /* brought.c */

/* What a request asked for, as far as words about its refusal need it. `kind` is one of enum
 * client_op_kind or of these. */
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
    tern_session session;                     /* 0: of none */
    uint32_t length, written, appended, base; /* tokens */
};

struct pending {
    enum pending_state state;
    uint16_t type;       /* of the answer */
    uint8_t next;        /* in the list of kept answers */
    uint32_t nops;       /* results that its answer may have: one but for a batch */
    struct asked *asked; /* owned: what each operation of a batch asked for; else NULL */
    uint64_t id, cookie;
    uint8_t *body;
    uint32_t body_bytes;
    struct subscription *sub;
    struct tern_lease *lease; /* borrowed: whose request it is, which is never polled; NULL */
    uint32_t lease_part;      /* of which it is: see lease.h */
};

/* A turn, or a session, whose caller had gone on before the answer came. */
struct unheld {
    uint64_t handle;
    bool is_session;
};

struct tern {
    struct client_socket socket;
    _Atomic uintptr_t *user; /* owned, on a page of its own: use.c */
    uint64_t incarnation, next_number;
    uint64_t trace_id; /* that requests carry; 0: none */
    enum member_kind member;
    uint32_t rank;
    uint64_t last_step; /* that was published, or put into a stream: it never goes back */
    struct stream_steps *by_stream; /* owned; NULL: no step went into a stream */
    bool kernels_left; /* a mapping has ended, and kernels of brought.c, or copies of block_lane.c,
                          may still be at it: this process never says that it has left */
    struct tern_pool *pools;
    struct tern_records *records;
    struct tern_lease *leases; /* owned */
    struct sender *sender;     /* owned: as long as there is a lease; else NULL */
    int bell; /* owned, -1 until a pool was mapped: written to, it wakes the daemon */

    struct budget budget; /* decodes what is not on the hot path */
    struct quick_store store;
    struct tern_result *results; /* TERN_BATCH_OPS_MAX: of the batch that was run last, or of the
                                    answer that tern_poll handed out last. As many behind them: of a
                                    lease's Step that is answered while a batch goes on */
    struct asked *asked;         /* as many: what they are the results of */
    uint32_t nresults;           /* that tern_result_text can be asked about */
    char *json; /* of the last tern_stats or tern_admin; grows up to TERN_ADMIN_JSON_MAX */
    size_t json_cap;
    char text[QUICK_TEXT_MAX], words[QUICK_TEXT_MAX]; /* words: of one result */

    struct pending pending[TERN_INFLIGHT_MAX];
    uint64_t pending_free; /* bit i: slot i is PENDING_FREE */
    uint8_t kept_head, kept_tail;

    struct unheld unheld[UNHELD_MAX]; /* what was begun for nobody, and is not ended yet */
    uint32_t nunheld;
};

struct tern_pool {
    struct tern *owner;
    struct tern_pool *next;
    struct device_map *device; /* owned: what `base` lies in; NULL: memory of the host */
    uint8_t *base;
    uint64_t bytes;
    uint8_t *control;
    struct stream_page *stream_page; /* owned; NULL: no step went into a stream */
    struct brought *brought;         /* owned; NULL: there is no place for checksums */
    bool copies_left;                /* a device may copy to and from it until the process ends */
};

struct tern_records {
    struct tern *owner;
    struct tern_records *next;
    uint8_t *base;
    uint64_t bytes;
};

/* ---- use.c ---- */

/* INTERNAL: no memory. */
enum tern_err use_create(struct tern *t);
void use_finish(struct tern *t);
/* Not in a forked child: the connection, the engine and the mappings are its parent's. */
bool is_owner(const struct tern *t);
/* The first line of each call of tern.h. DAEMON_LOST: in a forked child. CONFLICT: another thread
 * is in a call. The words of both are use_refused's, and the connection is not touched. */
#define ENTER(connection)                                                                          \
    struct tern *entered_ __attribute__((cleanup(use_end))) = NULL;                                \
    TRY(use_begin((connection), &entered_))
enum tern_err use_begin(struct tern *t, struct tern **ret);
void use_end(struct tern **t);
/* Why this thread's last call on it was refused; NULL: it was not. */
const char *use_refused(const struct tern *t);

/* ---- sender.c ---- */

/* Begins the thread that sends what is left to it. INTERNAL: it cannot be begun (errno). */
enum tern_err sender_start(struct client_socket *c, struct sender **ret);
/* Ends it, and sets *s to NULL, which it may be already. What still lies there is the caller's to
 * send. In a forked child, which has no such thread, it only frees. */
void sender_stop(struct sender **s, bool is_child);
/* Something was left to it. It waits for nothing, and makes a system call only where the thread has
 * found nothing for SENDER_QUIET_LOOKS. */
void sender_told(struct sender *s);

/* ---- send.c ---- */

/* A request on its way into the send buffer: the body is written through the writer, which ends
 * where the room does. */
struct outgoing {
    uint8_t *frame;
    struct writer body;
};

/* Sets the text and returns err. NULL: what the error table says. */
enum tern_err set_error(struct tern *t, enum tern_err err, const char *text);
/* The same with the numbers of the text, for tern_error_numbers. */
enum tern_err set_error_numbers(struct tern *t, enum tern_err err, const char *text,
                                const uint64_t numbers[2]);
/* Ends the connection: what came from the daemon makes no sense. Returns err. */
enum tern_err not_an_answer(struct tern *t, enum tern_err err);
uint64_t new_id(struct tern *t, uint32_t slot);
/* Room for a body of so many bytes and the trace id. BUSY: not now. INVALID, with a text: never. */
enum tern_err send_room(struct tern *t, size_t body, struct outgoing *ret);
/* Completes the frame, by the trace id and the header, and queues it. */
void send_queue(struct tern *t, struct outgoing *o, uint16_t type, uint64_t id, uint64_t session);
/* A message that has no writer of its own in quick.h; one that says nothing is padded. */
size_t message_size(const ProtobufCMessage *msg);
void put_whole(struct writer *w, const ProtobufCMessage *msg);

/* ---- check.c ---- */

/* INVALID with a text: lists that point nowhere or are longer than a request may be. */
enum tern_err check_tokens(struct tern *t, const struct tern_tokens *tokens);
/* A call that gives pages back names a step. */
enum tern_err check_step(struct tern *t, uint64_t step);
/* Who waits names one that somebody can pass. */
enum tern_err check_wait(struct tern *t, uint64_t step);
enum tern_err check_op(struct tern *t, const struct client_op *op);
enum tern_err check_peer(struct tern *t, const char *peer);
enum tern_err check_ticket(struct tern *t, const char *ticket);
/* INVALID with the name of the group: what is wrong whatever the daemon's configuration says. */
enum tern_err check_layout(struct tern *t, const struct tern_layout *layout);
/* A namespace as a message that borrows its strings. INVALID with a text. */
enum tern_err put_namespace(struct tern *t, const struct tern_namespace *ns,
                            Tern__Wire__Namespace *ret);

/* ---- leased.c ---- */

/* CONFLICT: the session is in a lease. BUSY: it has left one, and that was not submitted. Both with
 * a text. */
enum tern_err check_leased(struct tern *t, tern_session s);

/* ---- pieces.c ---- */

#define TOKENS_ONE_PIECE 16384u /* a daemon takes so many at once, whatever the pool */

/* As many tokens of the list from [at] on as one request has room for, and `most` at most; borrows
 * its arrays. */
struct tern_tokens piece_of(const struct tern *t, const struct tern_tokens *all, uint32_t at,
                            uint32_t most);
/* Returns how many of a piece's tokens the daemon took, by its answer. *ret_most: so many are to be
 * sent next, since what it does not take is sent again. */
uint32_t piece_taken(const struct tern_tokens *piece, uint32_t taken, uint32_t *ret_most);

/* ---- changes.c ---- */

struct subscription *subscription_new(void); /* NULL: no memory */
void subscription_free(struct subscription *sub);
/* An answer of a subscription: kept with what is there already. False: it is no such answer, or
 * there is no memory. */
bool subscription_take(struct tern *t, struct pending *p, const uint8_t *body, uint32_t n);
/* What is kept, as an answer; borrowed until the next one is taken. Returns its err: not OK is the
 * end. */
enum tern_err subscription_give(struct tern *t, struct pending *p, struct tern_answer *ret);

/* ---- stock.c ---- */

/* An answer to what a lease has submitted. False: it is no such answer, or there is no memory. */
bool stock_take(struct tern *t, struct pending *p, const uint8_t *body, uint32_t n);

/* ---- pending.c ---- */

/* Takes a free slot and returns the number of its request, whose answer has one result. sub: NULL,
 * or consumed. */
uint64_t pending_begin(struct tern *t, uint32_t slot, uint16_t type, uint64_t cookie,
                       struct subscription *sub);
void pending_free(struct tern *t, uint32_t slot);
void pending_end(struct tern *t, uint32_t slot); /* that of a subscription: it is kept no more */
/* What that lease has under way is nobody's, on a connection that is lost. */
void pending_forget(struct tern *t, const struct tern_lease *lease);
void pending_finish(struct tern *t); /* frees what the whole table owns */
/* The submitted request that this frame answers, or NULL. */
struct pending *pending_find(struct tern *t, const struct frame_header *h);
/* A frame that no synchronous call waits for: keeps the answer of a submitted request, or drops
 * it. */
void pending_take(struct tern *t, const struct frame_header *h, const uint8_t *body);
/* The answer to a call that ran into its deadline is dropped, and a turn or a session that it
 * brought is ended; what was never asked for ends the connection. */
void pending_drop(struct tern *t, const struct frame_header *h, const uint8_t *body);
/* Ends the turns and sessions that came for nobody, as far as there is room to say so. Not while a
 * call has a request id that is not sent yet: ids ascend. */
void pending_end_unheld(struct tern *t);
/* Takes the slot of the oldest answer that was kept off their list; NO_SLOT: there is none. */
uint32_t pending_kept(struct tern *t);

/* ---- words.c ---- */

uint8_t asked_of(uint16_t type); /* of a request of the hot path, by its frame */
struct asked asked_op(const struct client_op *op);
/* The daemon's own words are in t->text; where there are none, or the numbers say more, what those
 * say goes there.
 * Returns the error of the result. */
enum tern_err said(struct tern *t, const struct asked *a, const struct tern_result *r);
#define WORDS_WHY_MAX 160 /* bytes of the rule that a request broke, with the NUL */
/* That rule alone, for who says the numbers in its own sentence; else what the error means. */
void words_why(const struct asked *a, const struct tern_result *r, char ret[WORDS_WHY_MAX]);
/* Behind the daemon's words: which handle it is that is GONE. */
void say_handle(struct tern *t, tern_session s);
/* The same for the answer to a Retract that came without words: numbers of pages say more than
 * those of the error table. */
enum tern_err said_retracted(struct tern *t, enum tern_err err, const struct tern_retracted *away);

struct call;

/* ---- ops.c ---- */

/* Sends operations in a call that was begun, and takes what became of them: t->results, *ret_done
 * of them. */
enum tern_err ops_send(struct tern *t, const struct client_op *ops, uint32_t n, struct call *call);
enum tern_err ops_take(struct tern *t, const struct client_op *ops, uint32_t n, struct call *call,
                       uint32_t *ret_done);

/* ---- batch.c ---- */

/* The halves of tern_batch_run: the caller does something else meanwhile. The batch is left as it
 * is until its answer is taken; answers are taken in the order in which batches were sent. */
enum tern_err batch_send(struct tern_batch *b, uint32_t deadline_ms, struct call *ret);
enum tern_err batch_take(struct tern_batch *b, struct call *call,
                         const struct tern_result **ret_results, uint32_t *ret_done);

/* ---- call.c ---- */

/* A call under way: made by call_start, used up by call_wait. */
struct call {
    uint64_t id, deadline_ns;
    uint32_t sleep_ms; /* what one receive may take: all of the deadline, 0 once some has passed */
    uint16_t reply_type;
    uint32_t pieces; /* requests that it may be made of, with this one */
};

#define CALL_PIECES_MAX 4096u

/* DAEMON_LOST where nothing can be asked any more. */
enum tern_err call_start(struct tern *t, uint16_t type, uint32_t deadline_ms, struct call *ret);
/* When a call that begins now runs into its deadline. */
uint64_t deadline_at(uint32_t deadline_ms);
/* The same for a request that is one of several under one deadline, a time of the clock of
 * client_socket_now_ns. TIMED_OUT, with a text: it has passed. */
enum tern_err call_start_by(struct tern *t, uint16_t type, uint64_t deadline_ns, struct call *ret);
/* One step of the daemon was too short for the request that was answered so: it goes on. True: the
 * call has begun anew, and the request is to be sent again. */
bool call_again(struct tern *t, enum tern_err err, struct call *call);
/* Queues the request, waiting for room in the send buffer until the call's deadline. */
enum tern_err call_put(struct tern *t, struct call *call, uint64_t session,
                       const ProtobufCMessage *msg);
enum tern_err call_put_quick(struct tern *t, struct call *call, const struct quick_request *q);
/* start, put and wait in one: the body of the answer, borrowed like that of call_wait. */
enum tern_err call_quick(struct tern *t, const struct quick_request *q, uint32_t deadline_ms,
                         const uint8_t **ret_body, uint32_t *ret_n);
/* Sends what is queued, waits for the answer; body borrowed until the connection receives again. */
enum tern_err call_wait(struct tern *t, struct call *call, const uint8_t **ret_body,
                        uint32_t *ret_n);
/* The same, decoded, its status taken: the error is the daemon's. The message is borrowed until the
 * next call. */
enum tern_err call_answer(struct tern *t, struct call *call, const ProtobufCMessage **ret);
/* The same for an answer that brings descriptors: with OK they are the caller's, and else they are
 * closed. */
struct call_fds {
    int v[CLIENT_FDS_MAX];
    uint32_t n; /* 1 or more */
};
enum tern_err call_whole_fds(struct tern *t, uint16_t type, const ProtobufCMessage *msg,
                             uint32_t deadline_ms, struct call_fds *ret_fds,
                             const ProtobufCMessage **ret);
/* MALFORMED, with a text, and all are closed: there are not so many. */
enum tern_err call_fds_are(struct tern *t, const struct call_fds *fds, uint32_t n);
/* The error of an answer, which every one has in a Status in field 1; its words are taken. */
enum tern_err call_status(struct tern *t, const ProtobufCMessage *msg);
/* start, put and answer in one. */
enum tern_err call_whole(struct tern *t, uint16_t type, uint64_t session,
                         const ProtobufCMessage *msg, uint32_t deadline_ms,
                         const ProtobufCMessage **ret);

/* Takes what has come; answers that nobody waits for are kept. BUSY: that was all. */
enum tern_err call_take(struct tern *t);
/* The same once something has come, and sends what is queued. TIMED_OUT: the deadline has passed.
 */
enum tern_err call_round(struct tern *t, uint64_t deadline_ns);

/* ---- async.c ---- */

/* A free slot of the table and room for the body. BUSY: neither may be waited for here. */
enum tern_err async_room(struct tern *t, size_t body, struct outgoing *ret);
/* The body is in place: from now on the request is under way, and consumes `sub`. A connection that
 * is lost here is told by tern_poll. */
struct pending *async_submit(struct tern *t, struct outgoing *o, uint16_t type, uint64_t session,
                             uint64_t cookie, struct subscription *sub);
/* The same two for what a lease submits: they send nothing, and leave it to the thread of sender.c.
 * BUSY: there is no room now, with a text. */
enum tern_err async_room_left(struct tern *t, size_t body, struct outgoing *ret);
struct pending *async_leave(struct tern *t, struct outgoing *o, uint16_t type);
/* A request of the hot path, whole. asked: NULL, or what its n operations asked for, consumed when
 * the call returns OK. */
enum tern_err async_quick(struct tern *t, const struct quick_request *q, struct asked *asked,
                          uint32_t n, uint64_t cookie);

/* What the answer to a Store says. */
struct tern_stored stored_of(const ProtobufCMessage *msg);

/* ---- pool.c ---- */

/* As tern_pool_open. shared: a pool of that layout that engines have mapped will do, of any size.
 */
enum tern_err pool_open_as(struct tern *t, const struct tern_layout *layout, bool shared,
                           uint32_t deadline_ms, uint64_t *ret_pool, uint32_t *ret_align_tokens);
void pool_unmap_all(struct tern *t);
/* Maps memory of the daemon, for this process alone and not for its children. MALFORMED: the
 * descriptor does not hold that range. */
enum tern_err map_shared(int fd, uint64_t offset, uint64_t bytes, uint8_t **ret);

/* ---- lease_submit.c ---- */

void leases_free_all(struct tern *t);

/* ---- record.c ---- */

void records_unmap_all(struct tern *t);

#endif

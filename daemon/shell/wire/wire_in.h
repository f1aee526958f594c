/* Bodies to requests and peer messages: protobuf structs become the core's structs, token bytes are
 * used in place. Values that the core's types cannot hold (an unknown enum number, a long name) are
 * refused here; everything else is the core's to judge. request.c and link.c call it. */
#ifndef SHELL_WIRE_IN_H
#define SHELL_WIRE_IN_H

#include "core/core.h"
#include "proto/codec.h"
#include "reshard/layout.h"
#include "shell/config/config.h"

#define WIRE_IN_WORDS 256

struct wire_in {
    const struct config *config; /* borrowed */
    struct budget budget;
    void *mem; /* owned: the budget's */
    struct step_op ops[STEP_OPS_MAX];
    struct table_run op_runs[WIRE_RUNS_MAX]; /* of those */
    struct table_run runs[GROUPS_MAX];
    char group_names[GROUPS_MAX][GROUP_NAME_MAX]; /* of a PoolOpen, which borrows them */
    uint32_t blob[TICKET_WORDS];                  /* of a ticket, likewise */
    char words[WIRE_IN_WORDS];                    /* why a request was refused */
    struct reshard_layout layouts[GROUPS_MAX];    /* of a PoolOpen or a peer's message, likewise */
    uint32_t nlayouts;                            /* of the latter; 0: it has none */
    const char *peer_tenant; /* that a peer's message names, until the next call; NULL: none */
    const char *peer_unfit;  /* static: why it was refused */
    uint32_t peer_word;      /* the error that it said; what counts is in the message */
};

enum tern_err wire_in_init(struct wire_in *w, const struct config *config, uint32_t body_max);
void wire_in_finish(struct wire_in *w);

/* The operation that a frame of that type asks for; OP_NONE: none of the core's. */
enum op wire_in_op(uint16_t type);

/* A request that is an operation of the core. Its arrays live until the next call, and as long as
 * the body. conn and request_id are the caller's to set. UNSUPPORTED: a frame type that no such
 * request has. `tenant`: who asks; NONE: an operator. MALFORMED: not such a message. INVALID: a
 * value. *ret_text says which, until the next call; "". */
enum tern_err wire_in_request(struct wire_in *w, uint32_t tenant, const struct frame_header *h,
                              const uint8_t *body, struct request *ret, const char **ret_text);

/* `allowed`: bit i, the peer may name tenant i. */
enum tern_err wire_in_peer_msg(struct wire_in *w, const struct frame_header *h, const uint8_t *body,
                               uint64_t allowed, struct peer_msg *ret, uint64_t *ret_sequence);

/* A namespace's id in the core and between daemons; NULL is one of empty names. */
struct namespace_id wire_in_namespace(const Tern__Wire__Namespace *ns);

/* For messages that the shell answers itself: Hello, Ping, Stats, Admin, PeerHello. */
enum tern_err wire_in_message(struct wire_in *w, const struct frame_header *h, const uint8_t *body,
                              const ProtobufCMessage **ret);

#endif

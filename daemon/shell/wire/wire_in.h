/* Decodes bodies of requests and peer messages: protobuf structs become the core's structs, token
 * bytes are used in place. Refuses values that the core's types cannot represent (an unknown enum
 * number, a long name); the core checks all other values. Called by request.c and link.c. */
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
    void *mem; /* owned: the budget's memory */
    struct step_op ops[STEP_OPS_MAX];
    struct table_run op_runs[WIRE_RUNS_MAX]; /* runs of `ops` */
    struct table_run runs[GROUPS_MAX];
    char group_names[GROUPS_MAX][GROUP_NAME_MAX]; /* of a PoolOpen, which borrows the names */
    uint32_t blob[TICKET_WORDS];                  /* of a ticket, which borrows it */
    char words[WIRE_IN_WORDS];                    /* why a request was refused */
    struct reshard_layout layouts[GROUPS_MAX];    /* of a PoolOpen or a peer's message, as above */
    uint32_t nlayouts;                            /* of a peer's message; 0: none */
    const char *peer_tenant; /* named by a peer's message, until the next call; NULL: none */
    const char *peer_unfit;  /* why a peer's message was refused, static */
    uint32_t peer_word;      /* the error as received; the core may get another */
};

enum tern_err wire_in_init(struct wire_in *w, const struct config *config, uint32_t body_max);
void wire_in_finish(struct wire_in *w);

/* The core's operation for a frame of that type; OP_NONE: none. */
enum op wire_in_op(uint16_t type);

/* Decodes a request for an operation of the core. Its arrays are borrowed until the next call and
 * from the body. The caller sets conn and request_id. tenant: the asking tenant; NONE: an operator.
 * UNSUPPORTED: no such request has this frame type. MALFORMED: the body is no such message.
 * INVALID: a value is wrong; *ret_text, borrowed until the next call, names it, or is "". */
enum tern_err wire_in_request(struct wire_in *w, uint32_t tenant, const struct frame_header *h,
                              const uint8_t *body, struct request *ret, const char **ret_text);

/* allowed: bit i: the peer may name tenant i. */
enum tern_err wire_in_peer_msg(struct wire_in *w, const struct frame_header *h, const uint8_t *body,
                               uint64_t allowed, struct peer_msg *ret, uint64_t *ret_sequence);

/* A namespace's id in the core and between daemons; NULL: a namespace of empty names. */
struct namespace_id wire_in_namespace(const Tern__Wire__Namespace *ns);

/* Decodes a message that the shell itself answers, such as Hello, Ping, Stats, Admin or PeerHello:
 * the struct of its type, borrowed until the next call. NULL: the message is malformed. */
const void *wire_in_message(struct wire_in *w, const struct frame_header *h, const uint8_t *body);

#endif

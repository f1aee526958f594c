/* Requests to the daemon, on one kept connection to its admin socket. All questions of one round
 * share one deadline. After a daemon did not answer, questions within ASK_AGAIN_MS fail at once, so
 * that queued requests never wait for it one by one. */
#ifndef AGENT_ASK_H
#define AGENT_ASK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "tern.h"

#define ASK_AGAIN_MS  1000u
#define ASK_PAGE_ROWS 256u /* rows of one answer: the daemon has other work */
#define ASK_PAGES_MAX 256u /* pages of one list */

/* X(name, word): the reasons for a missing answer. */
#define ASK_REASONS(X)                                                                             \
    X(NO_SOCKET, "no_socket") /* nothing is at that path */                                        \
    X(DENIED,                                                                                      \
      "denied") /* the socket's mode forbids the connection, or the socket is a tenant's */        \
    X(NOBODY_LISTENS, "nobody_listens") /* the daemon that made the socket has ended */            \
    X(TIMED_OUT, "timed_out")           /* no answer within the deadline */                        \
    X(LOST, "lost")                     /* the daemon closed the connection */                     \
    X(VERSION, "version")               /* daemon and agent have no version in common */           \
    X(REFUSED, "refused")               /* the daemon answered with an error, or not with JSON */

enum ask_reason {
#define X(name, word) ASK_##name,
    ASK_REASONS(X)
#undef X
        ASK_ANSWERED,
};

struct ask {
    const char *socket; /* borrowed */
    uint32_t deadline_ms;
    struct tern *tern; /* NULL: not connected */
    bool kept;         /* the connection is from an earlier round, with no answer in this one */
    enum ask_reason why;
    uint64_t until_ns, again_ns;
    uint64_t failures[ASK_ANSWERED];
};

uint64_t ask_now_ns(void); /* CLOCK_MONOTONIC */
const char *ask_word(enum ask_reason reason);

/* Begins a round. Returns false if there is no daemon; `why` is the reason. */
bool ask_begin(struct ask *a);
/* Each returns false if there is no answer, which ends the round. The caller owns *ret. */
bool ask_ping(struct ask *a);
bool ask_for(struct ask *a, const char *command, json_t **ret);
/* {"<list>": [...], "more": true if there are rows behind these}. */
bool ask_list(struct ask *a, const char *list, uint32_t rows, json_t **ret);
void ask_end(struct ask *a); /* closes the connection */

#endif

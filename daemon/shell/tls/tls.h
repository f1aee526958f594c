/* TLS 1.3 between daemons; both sides present a certificate. This module decodes a peer's bytes and
 * verifies the peer's name. The module uses no sockets: streams pass received bytes to a session
 * and send the bytes that it produces. The files are read at start and by tls_reload; existing
 * sessions keep the files that they began with. Owner thread only. OpenSSL's memory comes from
 * tls_arena.h. */
#ifndef SHELL_TLS_H
#define SHELL_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tern_err.h"

#define TLS_FILE_MAX            (64u << 10) /* size of a file of certificates or of the key */
#define TLS_FILE_CERTS_MAX      32          /* in one file */
#define TLS_CHAIN_MAX           4           /* certificates between a peer's own and the CA's */
#define TLS_CHAIN_BYTES_MAX     (32u << 10) /* size of the chain that a peer sends */
#define TLS_HANDSHAKES_MAX      32          /* handshakes from peers at a time */
#define TLS_HANDSHAKE_BYTES_MAX (64u << 10) /* bytes from a peer whose name is not verified yet */
#define TLS_PLAIN_BYTES         16384       /* the most plain bytes of one record */
#define TLS_RECORD_OVERHEAD     64          /* bytes around them, at most */
#define TLS_TIME_BYTES          24          /* 2027-01-31T23:59:59Z */
#define TLS_DETAIL_BYTES        256         /* size of a refusal's detail */

/* Why a peer or its bytes were refused. The names appear in logs and in `ternctl peers`. */
enum tls_refusal {
    TLS_NO_CERTIFICATE = 0,
    TLS_WRONG_CA,
    TLS_WRONG_NAME,      /* its certificate is valid, but names no node that the peer may be */
    TLS_EXPIRED,         /* or not valid yet */
    TLS_BAD_CERTIFICATE, /* another fault of the certificate, such as its purpose or key */
    TLS_OLD_VERSION,     /* does not speak TLS 1.3 */
    TLS_BAD_HANDSHAKE,
    TLS_BAD_RECORD,   /* not a record, or a record changed, repeated or lost on the way */
    TLS_PEER_REFUSED, /* the peer refused us with an alert */
    TLS_TIMEOUT,
    TLS_CLEAR_TEXT, /* the other side talks in the clear: its first bytes are a frame */
    TLS_NO_ROOM,    /* too many handshakes, too many bytes in a handshake, or the arena is full */
    TLS_REFUSALS,
};
const char *tls_refusal_name(enum tls_refusal why);

struct tls_files {
    const char *ca, *cert, *key; /* PEM */
};

struct tls_config {
    struct tls_files files;   /* borrowed, like all fields here */
    const char *node;         /* our node, which our certificate must name */
    const char *const *peers; /* names that an inbound peer's certificate may have */
    uint32_t npeers;
    uint32_t sessions; /* sessions at a time */
};

/* Our own certificate. */
struct tls_own {
    char not_after[TLS_TIME_BYTES];
    int64_t not_after_s, life_s; /* end, since 1970; length of its validity */
    bool own_ca;                 /* issued by a CA that we trust, as peers with the same CA do */
};

struct tls_stats {
    struct tls_own own;
    int64_t left_s; /* remaining life; may be below 0 */
    uint64_t reloads, reloads_failed, handshakes;
    uint64_t memory_bytes, memory_used_max, memory_refused; /* of the arena */
};

struct tls;
struct tls_session;

/* tls_create: INVALID with `why`, which names the file and its fault; INTERNAL: no memory. */
uint64_t tls_bytes(uint32_t sessions); /* the most memory that the sessions take */
enum tern_err tls_create(const struct tls_config *config, struct tls **ret, char *why, size_t cap);
void tls_destroy(struct tls *tls); /* ends every session */
/* Reads these files in place of the configuration's. On an error nothing changes; a dry run only
 * checks the files. *ret: the certificate read. */
enum tern_err tls_reload(struct tls *tls, const struct tls_files *files, bool dry_run,
                         struct tls_own *ret, char *why, size_t cap);
void tls_stats(const struct tls *tls, struct tls_stats *ret);

/* Sends the bytes, borrowed for the call. Returns false if there is no room for them. */
typedef bool tls_send(void *ctx, const uint8_t *bytes, size_t n);

/* peer: the name that the other side must have, if we begin the session; NULL if the other side
 * begins: any name of config.peers. BUSY: no session is free, TLS_HANDSHAKES_MAX handshakes are in
 * progress, or the arena is full. */
enum tern_err tls_open(struct tls *tls, const char *peer, tls_send *send, void *ctx,
                       struct tls_session **ret);
void tls_close(struct tls_session *s); /* NULL is fine */

enum tls_got {
    TLS_WANTS = 0, /* all bytes were consumed; more are needed */
    TLS_SECURED,   /* once: the other side's name is verified; tls_put may be used */
    TLS_BYTES,     /* *ret_plain, *ret_n: borrowed until the next call on any session */
    TLS_ENDED,     /* the other side has ended the session */
    TLS_FAILED,    /* see tls_refusal_of; an alert may have been sent; the session is over */
};

/* Consumes received bytes, advancing *in and *n, and returns at most plain_max plain bytes. Call it
 * until it returns TLS_WANTS, now or later: the session keeps the rest of a record. In a session
 * that we begin, call it once with no bytes first. */
enum tls_got tls_take(struct tls_session *s, const uint8_t **in, size_t *n, size_t plain_max,
                      const uint8_t **ret_plain, size_t *ret_n);
/* Sends n bytes at once. Returns false if the session failed, as with TLS_FAILED. */
bool tls_put(struct tls_session *s, const uint8_t *plain, size_t n);

bool tls_secured(const struct tls_session *s);
enum tls_refusal tls_refusal_of(const struct tls_session *s);
const char *tls_detail(const struct tls_session *s); /* OpenSSL's text; static */
/* Returns true if the other side's certificate has that name. Secured sessions only. */
bool tls_names(const struct tls_session *s, const char *name);

struct tls_peer {
    const char *version, *cipher; /* static */
    char not_after[TLS_TIME_BYTES];
};
void tls_peer(const struct tls_session *s, struct tls_peer *ret); /* secured sessions only */

#endif

/* TLS 1.3 between daemons; both sides show a certificate. This module decodes a peer's bytes and
 * decides whether the peer is who it must be. It uses no sockets: a session is given the bytes that
 * came and hands out the bytes to send; streams carry both. The files are read at start and by
 * tls_reload; existing sessions keep what they began with. Owner thread only. OpenSSL's memory
 * comes from tls_arena.h. */
#ifndef SHELL_TLS_H
#define SHELL_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tern_err.h"

#define TLS_FILE_MAX            (64u << 10) /* of a file of certificates, and of the key */
#define TLS_FILE_CERTS_MAX      32          /* in one file */
#define TLS_CHAIN_MAX           4           /* certificates between a peer's own and the CA's */
#define TLS_CHAIN_BYTES_MAX     (32u << 10) /* of the chain that a peer sends */
#define TLS_HANDSHAKES_MAX      32          /* from peers, at a time */
#define TLS_HANDSHAKE_BYTES_MAX (64u << 10) /* that a peer may send before it is known */
#define TLS_PLAIN_BYTES         16384       /* the most that one record holds */
#define TLS_RECORD_OVERHEAD     64          /* around it, at most */
#define TLS_TIME_BYTES          24          /* 2027-01-31T23:59:59Z */
#define TLS_DETAIL_BYTES        256         /* of what a refusal says beside its reason */

/* Why a peer, or what it sent, was not accepted. The names are in logs and in `ternctl peers`. */
enum tls_refusal {
    TLS_NO_CERTIFICATE = 0,
    TLS_WRONG_CA,
    TLS_WRONG_NAME,      /* its certificate is good, and does not name a node that it may be */
    TLS_EXPIRED,         /* or not valid yet */
    TLS_BAD_CERTIFICATE, /* anything else about it: its purpose, its key */
    TLS_OLD_VERSION,     /* does not speak TLS 1.3 */
    TLS_BAD_HANDSHAKE,
    TLS_BAD_RECORD,   /* no record, or one that was changed, repeated or left out on the way */
    TLS_PEER_REFUSED, /* the peer does not accept us, and said so */
    TLS_TIMEOUT,
    TLS_CLEAR_TEXT, /* the other side talks in the clear: its first bytes are a frame's */
    TLS_NO_ROOM,    /* too many handshakes, too many bytes in one, or the arena is used up */
    TLS_REFUSALS,
};
const char *tls_refusal_name(enum tls_refusal why);

struct tls_files {
    const char *ca, *cert, *key; /* PEM */
};

struct tls_config {
    struct tls_files files;   /* borrowed, as all here */
    const char *node;         /* ours: our certificate has to name it */
    const char *const *peers; /* names that an inbound peer's certificate may have */
    uint32_t npeers;
    uint32_t sessions; /* at a time */
};

/* Our own certificate. */
struct tls_own {
    char not_after[TLS_TIME_BYTES];
    int64_t not_after_s, life_s; /* since 1970; how long it is valid */
    bool own_ca; /* it comes from a CA that we trust ourselves, as peers with the same CA do */
};

struct tls_stats {
    struct tls_own own;
    int64_t left_s; /* of its life; may be below 0 */
    uint64_t reloads, reloads_failed, handshakes;
    uint64_t memory_bytes, memory_used_max, memory_refused; /* of the arena */
};

struct tls;
struct tls_session;

/* INVALID with `why`, which names the file and what is wrong with it; INTERNAL: no memory. */
uint64_t tls_bytes(uint32_t sessions); /* what the sessions take, at the most */
enum tern_err tls_create(const struct tls_config *config, struct tls **ret, char *why, size_t cap);
void tls_destroy(struct tls *tls); /* ends every session */
/* Reads these files in place of those of the configuration. On an error everything stays as it is;
 * so it does after a dry run, which judges them alone. *ret: what was read. */
enum tern_err tls_reload(struct tls *tls, const struct tls_files *files, bool dry_run,
                         struct tls_own *ret, char *why, size_t cap);
void tls_stats(const struct tls *tls, struct tls_stats *ret);

/* Sends the bytes, which are borrowed for the call. False: there is no room for them. */
typedef bool tls_send(void *ctx, const uint8_t *bytes, size_t n);

/* peer: the name that the other side must have, if we begin the session; NULL if the other side
 * begins, which may have any name of config.peers. BUSY: no session is free, TLS_HANDSHAKES_MAX are
 * under way, or the arena is used up. */
enum tern_err tls_open(struct tls *tls, const char *peer, tls_send *send, void *ctx,
                       struct tls_session **ret);
void tls_close(struct tls_session *s); /* NULL is fine */

enum tls_got {
    TLS_WANTS = 0, /* all bytes were taken; more have to come */
    TLS_SECURED,   /* once: the other side is who it must be; tls_put may be used */
    TLS_BYTES,     /* *ret_plain, *ret_n: borrowed until the next call on any session */
    TLS_ENDED,     /* the other side says that nothing follows */
    TLS_FAILED,    /* tls_refusal_of says why; an alert may have been sent. Nothing follows */
};

/* Takes from the bytes that came, advancing *in and *n, and gives plain_max plain bytes at the
 * most. Call it until it returns TLS_WANTS, now or later: what is left of a record stays in the
 * session. In a session that we begin, call it once with no bytes first. */
enum tls_got tls_take(struct tls_session *s, const uint8_t **in, size_t *n, size_t plain_max,
                      const uint8_t **ret_plain, size_t *ret_n);
/* Sends n bytes at once. False: the session failed, as with TLS_FAILED. */
bool tls_put(struct tls_session *s, const uint8_t *plain, size_t n);

bool tls_secured(const struct tls_session *s);
enum tls_refusal tls_refusal_of(const struct tls_session *s);
const char *tls_detail(const struct tls_session *s); /* OpenSSL's words; static */
/* Does the other side's certificate bear that name? Secured sessions only. */
bool tls_names(const struct tls_session *s, const char *name);

struct tls_peer {
    const char *version, *cipher; /* static */
    char not_after[TLS_TIME_BYTES];
};
void tls_peer(const struct tls_session *s, struct tls_peer *ret); /* secured sessions only */

#endif

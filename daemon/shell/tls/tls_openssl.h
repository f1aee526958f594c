/* Declarations that tls_session.c (one peer) and tls.c (files and contexts) share; tls.c calls
 * tls_session.c. No other file includes OpenSSL. */
#ifndef SHELL_TLS_OPENSSL_H
#define SHELL_TLS_OPENSSL_H

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/states.h"
#include "shell/tls/tls.h"

/* The states of a TLS session. */
#define TLS_SESSION_STATE_TABLE(X)                                                                 \
    X(TLS_SESSION, UNUSED, TO(TLS_SESSION, HANDSHAKING), "in the list of free sessions")           \
    X(TLS_SESSION, HANDSHAKING,                                                                    \
      TO(TLS_SESSION, OPEN) | TO(TLS_SESSION, BROKEN) | TO(TLS_SESSION, UNUSED),                   \
      "the other side's identity is not yet proved")                                               \
    X(TLS_SESSION, OPEN, TO(TLS_SESSION, BROKEN) | TO(TLS_SESSION, UNUSED),                        \
      "the other side's identity is proved; records go both ways")                                 \
    X(TLS_SESSION, BROKEN, TO(TLS_SESSION, UNUSED),                                                \
      "refused, failed or ended: the session can only be closed")

STATE_MACHINE(tls_session, TLS_SESSION, TLS_SESSION_STATE_TABLE)

struct tls_session {
    struct tls *tls;
    enum tls_session_state state;
    enum tls_refusal refusal;
    const char *detail;
    SSL *ssl;          /* owned */
    const char *peer;  /* borrowed; NULL: the other side began */
    bool wrong_name;   /* the certificate has no allowed name; OpenSSL reports another error */
    bool send_full;    /* `send` had no room */
    const uint8_t *in; /* received bytes, not consumed yet; borrowed during tls_take */
    size_t in_n;
    size_t taken; /* bytes consumed during the handshake */
    tls_send *send;
    void *ctx;
    struct tls_session *next_free;
};

struct tls {
    struct tls_config config;
    SSL_CTX *ctx; /* owned; sessions keep the context that they began with */
    BIO_METHOD *bio;
    struct tls_session *session; /* owned */
    struct tls_session *free;
    uint32_t handshakes; /* handshakes in progress that peers began */
    struct tls_stats stats;
    uint8_t plain[TLS_PLAIN_BYTES];
    char detail[TLS_DETAIL_BYTES]; /* of the last refusal with more detail than OpenSSL's */
};

void tls_time_text(const ASN1_TIME *at, char ret[TLS_TIME_BYTES]);
/* Returns true if one of n names, exactly, is a DNS name of the certificate. Ignores the common
 * name. */
bool tls_cert_names(const X509 *cert, const char *const *name, uint32_t n);

BIO_METHOD *tls_bio_method(void);
int tls_verify(int ok, X509_STORE_CTX *store);

#endif

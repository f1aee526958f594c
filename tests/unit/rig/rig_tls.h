/* TLS without sockets for tests: two ends and the bytes between them. An end is a session of ours
 * or a bare OpenSSL one, which may do what no daemon does. Certificates are made once by
 * deploy/make-certs.sh. */
#ifndef UNIT_TLS_RIG_H
#define UNIT_TLS_RIG_H

#include <openssl/ssl.h>

#include "shell/tls/tls.h"

#define WIRE_BYTES (1u << 20)

/* One direction. */
struct wire {
    uint8_t bytes[WIRE_BYTES];
    size_t put, got;
};

struct end {
    struct tls *tls;
    struct tls_session *s; /* ours; or */
    SSL *ssl;              /* a bare one */
    SSL_CTX *ctx;
    struct wire *in, *out;
    enum tls_got last;
    bool secured;
    uint8_t plain[1u << 17]; /* what was understood */
    size_t plain_n;
};

extern char
    tls_dir[64]; /* holds ca.pem, a, b, c, cn, old, server.pem ..., and other/ of another CA */

extern const char *const tls_rig_peers[2];

void tls_rig_certs(void);
void tls_rig_remove(void);

/* A daemon's TLS: node `node` with the certificate DIR/cert.pem, for the peers a and b. */
struct tls *tls_rig_daemon(const char *node, const char *cert, const char *ca);
enum tern_err tls_rig_create(const char *node, const char *cert, const char *key, const char *ca,
                             struct tls **ret, char *why, size_t cap);

bool wire_put(void *end, const uint8_t *bytes, size_t n); /* a tls_send */
void end_init(struct end *e, struct wire *in, struct wire *out);
/* name NULL: it waits for the other side to begin. */
void end_ours(struct end *e, struct tls *tls, const char *name, struct wire *in, struct wire *out);
/* cert NULL: none. */
void end_bare(struct end *e, bool client, const char *cert, int version_max, struct wire *in,
              struct wire *out);
void end_close(struct end *e);
/* Takes at most `most` of what came; false once it has failed or ended. */
bool end_step(struct end *e, size_t most);
bool end_put(struct end *e, const void *bytes, size_t n);
/* Both ends in turn, in pieces of at most `most` bytes, until neither has anything to say. */
void ends_run(struct end *a, struct end *b, size_t most);

#endif

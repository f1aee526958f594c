/* TLS without sockets for tests: two ends and the bytes between them. An end is one of our sessions
 * or a plain OpenSSL one, which may do what no daemon does. deploy/make-certs.sh makes the
 * certificates once. */
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
    struct tls_session *s; /* one of ours; or */
    SSL *ssl;              /* a plain one */
    SSL_CTX *ctx;
    struct wire *in, *out;
    enum tls_got last;
    bool secured;
    uint8_t plain[1u << 17]; /* decrypted bytes */
    size_t plain_n;
};

extern char
    tls_dir[64]; /* holds ca.pem, a, b, c, cn, old, server.pem ..., and other/ of another CA */

extern const char *const tls_rig_peers[2];

void tls_rig_certs(void);
void tls_rig_remove(void);

/* TLS of a daemon: node `node` with the certificate DIR/cert.pem, and the peers a and b. */
struct tls *tls_rig_daemon(const char *node, const char *cert, const char *ca);
enum tern_err tls_rig_create(const char *node, const char *cert, const char *key, const char *ca,
                             struct tls **ret, char *why, size_t cap);

bool wire_put(void *end, const uint8_t *bytes, size_t n); /* is a tls_send */
void end_init(struct end *e, struct wire *in, struct wire *out);
/* name NULL: the other side begins. */
void end_ours(struct end *e, struct tls *tls, const char *name, struct wire *in, struct wire *out);
/* cert NULL: no certificate. */
void end_bare(struct end *e, bool client, const char *cert, int version_max, struct wire *in,
              struct wire *out);
void end_close(struct end *e);
/* Processes at most `most` received bytes. Returns false if the end has failed or ended. */
bool end_step(struct end *e, size_t most);
bool end_put(struct end *e, const void *bytes, size_t n);
/* Runs both ends in turn, at most `most` bytes each, until neither has anything to send. */
void ends_run(struct end *a, struct end *b, size_t most);

#endif

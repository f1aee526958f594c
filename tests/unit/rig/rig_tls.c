/* TLS without sockets for tests. See rig_tls.h. */
#include "unit/rig/rig_tls.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/err.h>

char tls_dir[64];
const char *const tls_rig_peers[] = {"a", "b"};

void tls_rig_certs(void)
{
    char command[1024];

    strcpy(tls_dir, "/tmp/tern-tls-XXXXXX");
    assert_non_null(mkdtemp(tls_dir));
    snprintf(command, sizeof(command),
             "set -e; m=%s/deploy/make-certs.sh; d=%s; bash $m $d a b c ab; SAN= bash $m $d cn; "
             "DAYS=-1 bash $m $d old; SAN=subjectAltName=DNS:b EKU=serverAuth bash $m $d half; "
             "SAN=subjectAltName=DNS:B bash $m $d upper; SAN='subjectAltName=DNS:*' bash $m $d "
             "star; SAN=subjectAltName=DNS:a,DNS:b bash $m $d both; bash $m $d/other a b; "
             "DAYS=-1 SAN=subjectAltName=DNS:b bash $m $d oldb",
             TERN_SOURCE_DIR, tls_dir);
    assert_int_equal(system(command), 0);
}

void tls_rig_remove(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", tls_dir);
    assert_int_equal(system(command), 0);
}

enum tern_err tls_rig_create(const char *node, const char *cert, const char *key, const char *ca,
                             struct tls **ret, char *why, size_t cap)
{
    static char path[8][3][160]; /* borrowed by the tls objects */
    static uint32_t next;
    char(*p)[160] = path[next++ % 8];
    struct tls_config config = {.files.ca = p[0],
                                .files.cert = p[1],
                                .files.key = p[2],
                                .node = node,
                                .peers = tls_rig_peers,
                                .npeers = 2,
                                .sessions = 64};

    snprintf(p[0], 160, "%s/%s.pem", tls_dir, ca);
    snprintf(p[1], 160, "%s/%s.pem", tls_dir, cert);
    snprintf(p[2], 160, "%s/%s.key", tls_dir, key);
    return tls_create(&config, ret, why, cap);
}

struct tls *tls_rig_daemon(const char *node, const char *cert, const char *ca)
{
    struct tls *tls = NULL;
    char why[512] = "";

    if (tls_rig_create(node, cert, cert, ca, &tls, why, sizeof(why)) != TERN_OK)
        fail_msg("%s", why);
    return tls;
}

bool wire_put(void *ctx, const uint8_t *bytes, size_t n)
{
    struct end *e = ctx;

    if (e->out->put + n > WIRE_BYTES)
        return false;
    memcpy(e->out->bytes + e->out->put, bytes, n);
    e->out->put += n;
    return true;
}

void end_init(struct end *e, struct wire *in, struct wire *out)
{
    memset(e, 0, sizeof(*e));
    e->in = in;
    e->out = out;
    in->put = in->got = 0;
}

void end_ours(struct end *e, struct tls *tls, const char *name, struct wire *in, struct wire *out)
{
    end_init(e, in, out);
    e->tls = tls;
    assert_int_equal(tls_open(tls, name, wire_put, e, &e->s), TERN_OK);
}

void end_bare(struct end *e, bool is_client, const char *cert, int version_max, struct wire *in,
              struct wire *out)
{
    char path[160];

    end_init(e, in, out);
    e->ctx = SSL_CTX_new(TLS_method());
    SSL_CTX_set_max_proto_version(e->ctx, version_max);
    SSL_CTX_set_verify(e->ctx, SSL_VERIFY_NONE, NULL);
    if (cert) {
        snprintf(path, sizeof(path), "%s/%s.pem", tls_dir, cert);
        assert_int_equal(SSL_CTX_use_certificate_file(e->ctx, path, SSL_FILETYPE_PEM), 1);
        snprintf(path, sizeof(path), "%s/%s.key", tls_dir, cert);
        assert_int_equal(SSL_CTX_use_PrivateKey_file(e->ctx, path, SSL_FILETYPE_PEM), 1);
    }
    e->ssl = SSL_new(e->ctx);
    SSL_set_bio(e->ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    if (is_client)
        SSL_set_connect_state(e->ssl);
    else
        SSL_set_accept_state(e->ssl);
}

void end_close(struct end *e)
{
    tls_close(e->s);
    SSL_free(e->ssl);
    SSL_CTX_free(e->ctx);
    e->s = NULL;
    e->ssl = NULL;
    e->ctx = NULL;
}

static void bare_flush(struct end *e)
{
    uint8_t buf[4096];
    int n;

    while ((n = BIO_read(SSL_get_wbio(e->ssl), buf, sizeof(buf))) > 0)
        assert_true(wire_put(e, buf, (size_t)n));
}

static bool bare_step(struct end *e, const uint8_t *in, size_t n)
{
    int rc;

    if (n)
        assert_int_equal(BIO_write(SSL_get_rbio(e->ssl), in, (int)n), (int)n);
    ERR_clear_error();
    rc = SSL_read(e->ssl, e->plain + e->plain_n, (int)(sizeof(e->plain) - e->plain_n));
    if (rc > 0)
        e->plain_n += (size_t)rc;
    e->secured = SSL_is_init_finished(e->ssl);
    bare_flush(e);
    return rc > 0 || SSL_get_error(e->ssl, rc) == SSL_ERROR_WANT_READ;
}

static bool ours_step(struct end *e, const uint8_t *in, size_t n)
{
    const uint8_t *plain = NULL;
    size_t plain_n = 0;

    for (;;) {
        e->last = tls_take(e->s, &in, &n, TLS_PLAIN_BYTES, &plain, &plain_n);
        switch (e->last) {
        case TLS_WANTS: assert_int_equal(n, 0); return true;
        case TLS_SECURED:
            assert_false(e->secured);
            e->secured = true;
            break;
        case TLS_BYTES:
            assert_true(e->secured && e->plain_n + plain_n <= sizeof(e->plain));
            memcpy(e->plain + e->plain_n, plain, plain_n);
            e->plain_n += plain_n;
            break;
        case TLS_ENDED:
        case TLS_FAILED: return false;
        }
    }
}

bool end_step(struct end *e, size_t most)
{
    size_t n = e->in->put - e->in->got;
    const uint8_t *in = e->in->bytes + e->in->got;

    if (e->last == TLS_FAILED || e->last == TLS_ENDED)
        return false;
    if (n > most)
        n = most;
    e->in->got += n;
    if (e->s ? ours_step(e, in, n) : bare_step(e, in, n))
        return true;
    e->last = e->last == TLS_ENDED ? TLS_ENDED : TLS_FAILED;
    return false;
}

bool end_put(struct end *e, const void *bytes, size_t n)
{
    bool ok;

    if (e->s)
        return tls_put(e->s, bytes, n);
    ok = SSL_write(e->ssl, bytes, (int)n) == (int)n;
    bare_flush(e);
    return ok;
}

void ends_run(struct end *a, struct end *b, size_t most)
{
    bool more = true;

    end_step(a, 0);
    while (more) {
        more = false;
        for (uint32_t i = 0; i < 2; i++) {
            struct end *e = i ? a : b;

            while (e->in->got < e->in->put && end_step(e, most))
                more = true;
        }
    }
}

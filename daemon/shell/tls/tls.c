/* Contexts: making them from the files and replacing them. See tls.h. Invariant: a context is
 * complete or does not exist, so a reload changes everything or nothing. */
#include "shell/tls/tls.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include "base/undumped.h"
#include "shell/log/log.h"
#include "shell/tls/tls_arena.h"
#include "shell/tls/tls_openssl.h"

#define SECURITY_LEVEL 2 /* of OpenSSL: 112 bits at least */

/* Runs once per process, before any other call of OpenSSL. OpenSSL reads no configuration file of
 * the system: this file alone decides what is accepted. */
static bool library_init(size_t arena_bytes)
{
    static bool hooked;
    uint8_t warm[16];
    time_t now = time(NULL);
    struct tm tm;

    if (tls_arena_create(arena_bytes) != TERN_OK)
        return false;
    if (!hooked && CRYPTO_set_mem_functions(tls_arena_take, tls_arena_resize, tls_arena_put) != 1)
        return false;
    hooked = true;
    gmtime_r(&now, &tm); /* the first call reads the time zone, and allocates */
    return OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_LOAD_SSL_STRINGS, NULL) ==
               1 &&
           RAND_bytes(warm, sizeof(warm)) == 1;
}

static bool rules(SSL_CTX *ctx)
{
    SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_max_cert_list(ctx, TLS_CHAIN_BYTES_MAX);
    SSL_CTX_set_verify_depth(ctx, TLS_CHAIN_MAX);
    SSL_CTX_set_security_level(ctx, SECURITY_LEVEL);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, tls_verify);
    return SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_num_tickets(ctx, 0) == 1 && SSL_CTX_set_max_early_data(ctx, 0) == 1;
}

static enum tern_err load(const struct tls *tls, const struct tls_files *files, SSL_CTX **ret,
                          char *why, size_t cap)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());
    enum tern_err err;

    if (!ctx || !rules(ctx)) {
        SSL_CTX_free(ctx);
        ERR_clear_error();
        return fail_with(why, cap, TERN_INTERNAL, "tls: no memory for a context");
    }
    err = tls_read_certs(ctx, files->ca, tls_trust_cert, why, cap);
    if (err == TERN_OK)
        err = tls_read_certs(ctx, files->cert, tls_present_cert, why, cap);
    if (err == TERN_OK)
        err = tls_read_key(ctx, files->key, why, cap);
    if (err == TERN_OK)
        err = tls_judge_own(&tls->config, files->cert, ctx, why, cap);
    if (err != TERN_OK) {
        SSL_CTX_free(ctx);
        return err;
    }
    *ret = ctx;
    return TERN_OK;
}

static struct tls_own own_of(SSL_CTX *ctx)
{
    const X509 *cert = SSL_CTX_get0_certificate(ctx);
    struct tls_own own = {.not_after_s = tls_time_s(X509_get0_notAfter(cert)),
                          .own_ca = tls_own_trusted(ctx)};

    tls_time_text(X509_get0_notAfter(cert), own.not_after);
    own.life_s = own.not_after_s - tls_time_s(X509_get0_notBefore(cert));
    return own;
}

static void use(struct tls *tls, SSL_CTX *ctx)
{
    SSL_CTX_free(tls->ctx); /* sessions keep a reference */
    tls->ctx = ctx;
    tls->stats.own = own_of(ctx);
}

static size_t arena_bytes(uint32_t sessions)
{
    return TLS_ARENA_BASE_BYTES + (size_t)sessions * TLS_ARENA_SESSION_BYTES;
}

uint64_t tls_bytes(uint32_t sessions)
{
    return arena_bytes(sessions) + (uint64_t)sessions * sizeof(struct tls_session);
}

enum tern_err tls_create(const struct tls_config *config, struct tls **ret, char *why, size_t cap)
{
    struct tls *tls = undumped_take(sizeof(*tls), false);
    SSL_CTX *ctx = NULL;
    enum tern_err err = TERN_INTERNAL;

    if (tls) {
        tls->config = *config;
        tls->session = calloc(config->sessions, sizeof(*tls->session));
    }
    if (!tls || !tls->session || !library_init(arena_bytes(config->sessions)) ||
        !(tls->bio = tls_bio_method())) {
        snprintf(why, cap, "tls: no memory for %u sessions", config->sessions);
    } else {
        err = load(tls, &config->files, &ctx, why, cap);
    }
    if (err != TERN_OK) {
        tls_destroy(tls);
        return err;
    }
    use(tls, ctx);
    for (uint32_t i = config->sessions; i-- > 0;) {
        tls->session[i].tls = tls;
        tls->session[i].next_free = tls->free;
        tls->free = &tls->session[i];
    }
    *ret = tls;
    return TERN_OK;
}

enum tern_err tls_reload(struct tls *tls, const struct tls_files *files, bool dry_run,
                         struct tls_own *ret, char *why, size_t cap)
{
    SSL_CTX *ctx;
    enum tern_err err = load(tls, files, &ctx, why, cap);

    if (err != TERN_OK) {
        tls->stats.reloads_failed += !dry_run;
        return err;
    }
    *ret = own_of(ctx);
    if (dry_run) {
        SSL_CTX_free(ctx);
        return TERN_OK;
    }
    use(tls, ctx);
    tls->stats.reloads++;
    return TERN_OK;
}

void tls_stats(const struct tls *tls, struct tls_stats *ret)
{
    struct tls_arena_stats arena;

    tls_arena_stats(&arena);
    *ret = tls->stats;
    ret->left_s = ret->own.not_after_s - (int64_t)time(NULL);
    ret->memory_bytes = arena.cap;
    ret->memory_used_max = arena.used_max;
    ret->memory_refused = arena.refused;
}

void tls_destroy(struct tls *tls)
{
    if (!tls)
        return;
    for (uint32_t i = 0; tls->session && i < tls->config.sessions; i++)
        tls_close(&tls->session[i]);
    SSL_CTX_free(tls->ctx);
    BIO_meth_free(tls->bio);
    free(tls->session);
    undumped_put(tls, sizeof(*tls));
}

/* Contexts: making them from the files of certificates and keys, and replacing them. See tls.h.
 * Invariant: a context is complete or does not exist, so a reload changes everything or nothing.
 * Files are read by plain system calls into one static buffer, because a C stream would allocate;
 * no key stays in that buffer. */
#include "shell/tls/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <openssl/crypto.h>
#include <openssl/pem.h>
#include <openssl/rand.h>

#include "base/err.h"
#include "base/undumped.h"
#include "shell/log/log.h"
#include "shell/tls/tls_arena.h"
#include "shell/tls/tls_openssl.h"

#define SECURITY_LEVEL 2 /* of OpenSSL: 112 bits at least */

/* ---- files ---- */

static uint8_t file_bytes[TLS_FILE_MAX + 1];

static enum tern_err file_fail(char *why, size_t cap, const char *file, const char *format, ...)
{
    size_t n = (size_t)snprintf(why, cap, "tls: %s: ", file);
    va_list args;

    va_start(args, format);
    if (n < cap)
        vsnprintf(why + n, cap - n, format, args);
    va_end(args);
    ERR_clear_error();
    return TERN_INVALID;
}

/* Reads only a plain file: a pipe or a device would block the owner thread. */
static enum tern_err read_file(const char *path, size_t *ret_n, char *why, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    size_t n = 0;
    ssize_t got = 0;

    if (fd < 0)
        return file_fail(why, cap, path, "%s", strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return file_fail(why, cap, path, "is not a file");
    }
    while (n < sizeof(file_bytes) && (got = read(fd, file_bytes + n, sizeof(file_bytes) - n)) > 0)
        n += (size_t)got;
    close(fd);
    if (got < 0)
        return file_fail(why, cap, path, "%s", strerror(errno));
    if (n > TLS_FILE_MAX)
        return file_fail(why, cap, path, "is larger than %u bytes", TLS_FILE_MAX);
    *ret_n = n;
    return TERN_OK;
}

/* A daemon has nobody to ask for a pass phrase. */
static int no_phrase(char *buf, int size, int writing, void *ctx)
{
    (void)buf, (void)size, (void)writing, (void)ctx;
    return -1;
}

static bool trust_cert(SSL_CTX *ctx, X509 *cert, uint32_t i)
{
    (void)i;
    return X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), cert) == 1;
}

/* The first certificate is ours; the others are the chain to the CA. */
static bool present_cert(SSL_CTX *ctx, X509 *cert, uint32_t i)
{
    return (i == 0 ? SSL_CTX_use_certificate(ctx, cert)
                   : (int)SSL_CTX_add1_chain_cert(ctx, cert)) == 1;
}

typedef bool take_cert(SSL_CTX *ctx, X509 *cert, uint32_t i);

static enum tern_err read_certs(SSL_CTX *ctx, const char *path, take_cert *take, char *why,
                                size_t cap)
{
    uint32_t i = 0;
    bool ok = true;
    X509 *cert;
    size_t n;
    BIO *bio;

    TRY(read_file(path, &n, why, cap));
    bio = BIO_new_mem_buf(file_bytes, (int)n);
    while (bio && ok && i < TLS_FILE_CERTS_MAX &&
           (cert = PEM_read_bio_X509(bio, NULL, no_phrase, NULL)) != NULL) {
        ok = take(ctx, cert, i++);
        X509_free(cert);
    }
    /* The loop must end at the end of the file, not within a certificate. */
    ok = ok && bio && i > 0 && i < TLS_FILE_CERTS_MAX &&
         ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    BIO_free(bio);
    if (!ok)
        return file_fail(why, cap, path, "has no certificate in PEM, or one that cannot be used");
    ERR_clear_error();
    return TERN_OK;
}

static enum tern_err read_key(SSL_CTX *ctx, const char *path, char *why, size_t cap)
{
    EVP_PKEY *key;
    BIO *bio;
    size_t n;
    bool ok;

    TRY(read_file(path, &n, why, cap));
    bio = BIO_new_mem_buf(file_bytes, (int)n);
    key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_phrase, NULL) : NULL;
    BIO_free(bio);
    OPENSSL_cleanse(file_bytes, sizeof(file_bytes));
    if (!key)
        return file_fail(why, cap, path, "has no private key in PEM without a pass phrase");
    ok = SSL_CTX_use_PrivateKey(ctx, key) == 1 && SSL_CTX_check_private_key(ctx) == 1;
    EVP_PKEY_free(key);
    return ok ? TERN_OK : file_fail(why, cap, path, "is not the key of the certificate");
}

/* Returns the seconds since 1970. */
static int64_t time_s(const ASN1_TIME *at)
{
    struct tm tm;

    return ASN1_TIME_to_tm(at, &tm) == 1 ? (int64_t)timegm(&tm) : 0;
}

/* Returns true if we would accept a peer that presents our own certificate. */
static bool own_trusted(SSL_CTX *ctx)
{
    X509_STORE_CTX *judge = X509_STORE_CTX_new();
    STACK_OF(X509) *chain = NULL;
    bool trusted;

    SSL_CTX_get0_chain_certs(ctx, &chain);
    trusted = judge &&
              X509_STORE_CTX_init(judge, SSL_CTX_get_cert_store(ctx), SSL_CTX_get0_certificate(ctx),
                                  chain) == 1 &&
              X509_verify_cert(judge) == 1;
    X509_STORE_CTX_free(judge);
    ERR_clear_error();
    return trusted;
}

/* Refuses a certificate of ours that every peer would refuse, here where the cause is known. */
static enum tern_err judge_own(const struct tls_config *config, const char *file, SSL_CTX *ctx,
                               char *why, size_t cap)
{
    X509 *cert = SSL_CTX_get0_certificate(ctx);

    if (X509_cmp_current_time(X509_get0_notAfter(cert)) <= 0)
        return file_fail(why, cap, file, "the certificate has expired");
    if (X509_cmp_current_time(X509_get0_notBefore(cert)) >= 0)
        return file_fail(why, cap, file, "the certificate is not valid yet");
    if (!tls_cert_names(cert, &config->node, 1))
        return file_fail(why, cap, file,
                         "the certificate has no subjectAltName DNS:%s, the name of this node",
                         config->node);
    if (X509_check_purpose(cert, X509_PURPOSE_SSL_CLIENT, 0) != 1 ||
        X509_check_purpose(cert, X509_PURPOSE_SSL_SERVER, 0) != 1)
        return file_fail(why, cap, file, "the certificate must allow both client and server use");
    return TERN_OK;
}

/* ---- contexts ---- */

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
    err = read_certs(ctx, files->ca, trust_cert, why, cap);
    if (err == TERN_OK)
        err = read_certs(ctx, files->cert, present_cert, why, cap);
    if (err == TERN_OK)
        err = read_key(ctx, files->key, why, cap);
    if (err == TERN_OK)
        err = judge_own(&tls->config, files->cert, ctx, why, cap);
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
    struct tls_own own = {.not_after_s = time_s(X509_get0_notAfter(cert)),
                          .own_ca = own_trusted(ctx)};

    tls_time_text(X509_get0_notAfter(cert), own.not_after);
    own.life_s = own.not_after_s - time_s(X509_get0_notBefore(cert));
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

/* Files into contexts: reading, judging and replacing them. See tls.h. What must stay true: a
 * context is whole or is not there, so a reload either changes everything or nothing; files are
 * read by plain system calls into one buffer made at start, as a C stream would allocate. */
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

#include "base/check.h"
#include "base/err.h"
#include "shell/tls/tls_arena.h"
#include "shell/tls/tls_openssl.h"

#define SECURITY_LEVEL 2 /* of OpenSSL: 112 bits at least */

static uint8_t file_bytes[TLS_FILE_MAX + 1];

bool tls_built(void)
{
    return true;
}

/* ---- OpenSSL's memory ---- */

static void *hook_take(size_t n, const char *file, int line)
{
    (void)file;
    (void)line;
    return tls_arena_take(n);
}

static void *hook_resize(void *p, size_t n, const char *file, int line)
{
    (void)file;
    (void)line;
    return tls_arena_resize(p, n);
}

static void hook_put(void *p, const char *file, int line)
{
    (void)file;
    (void)line;
    tls_arena_put(p);
}

/* Once a process, before anything else of OpenSSL. No configuration file of the system's is read:
 * what is accepted stands here. */
static bool library_init(size_t arena_bytes)
{
    static bool hooked;
    uint8_t warm[16];
    time_t now = time(NULL);
    struct tm tm;

    if (tls_arena_create(arena_bytes) != TERN_OK)
        return false;
    if (!hooked && CRYPTO_set_mem_functions(hook_take, hook_resize, hook_put) != 1)
        return false;
    hooked = true;
    gmtime_r(&now, &tm); /* its first call reads the time zone, and allocates */
    return OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_LOAD_SSL_STRINGS, NULL) ==
               1 &&
           RAND_bytes(warm, sizeof(warm)) == 1;
}

/* ---- files ---- */

static enum tern_err fail(char *why, size_t cap, const char *file, const char *format, ...)
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

/* A pipe or a device would hold the owner thread up. */
static enum tern_err read_file(const char *path, size_t *ret_n, char *why, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    size_t n = 0;
    ssize_t got = 0;

    if (fd < 0)
        return fail(why, cap, path, "%s", strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return fail(why, cap, path, "is no file");
    }
    while (n < sizeof(file_bytes) && (got = read(fd, file_bytes + n, sizeof(file_bytes) - n)) > 0)
        n += (size_t)got;
    close(fd);
    if (got < 0)
        return fail(why, cap, path, "%s", strerror(errno));
    if (n > TLS_FILE_MAX)
        return fail(why, cap, path, "is larger than %u bytes", TLS_FILE_MAX);
    *ret_n = n;
    return TERN_OK;
}

/* Nobody is there to be asked for a pass phrase. */
static int no_phrase(char *buf, int size, int writing, void *ctx)
{
    (void)buf;
    (void)size;
    (void)writing;
    (void)ctx;
    return -1;
}

typedef bool take_cert(SSL_CTX *ctx, X509 *cert, uint32_t i);

static bool trust(SSL_CTX *ctx, X509 *cert, uint32_t i)
{
    (void)i;
    return X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), cert) == 1;
}

/* The first is ours, the others the way from it to the CA. */
static bool present(SSL_CTX *ctx, X509 *cert, uint32_t i)
{
    return (i == 0 ? SSL_CTX_use_certificate(ctx, cert)
                   : (int)SSL_CTX_add1_chain_cert(ctx, cert)) == 1;
}

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
    /* What ends the loop has to be the end of the file, not half a certificate. */
    ok = ok && bio && i > 0 && i < TLS_FILE_CERTS_MAX &&
         ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    BIO_free(bio);
    if (!ok)
        return fail(why, cap, path, "holds no certificate in PEM, or one that cannot be used");
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
        return fail(why, cap, path, "holds no private key in PEM without a pass phrase");
    ok = SSL_CTX_use_PrivateKey(ctx, key) == 1 && SSL_CTX_check_private_key(ctx) == 1;
    EVP_PKEY_free(key);
    return ok ? TERN_OK : fail(why, cap, path, "is not the key of the certificate");
}

/* ---- certificates ---- */

void tls_time_text(const ASN1_TIME *at, char ret[TLS_TIME_BYTES])
{
    struct tm tm;

    if (ASN1_TIME_to_tm(at, &tm) != 1)
        memset(&tm, 0, sizeof(tm));
    snprintf(ret, TLS_TIME_BYTES, "%04u-%02u-%02uT%02u:%02u:%02uZ",
             (unsigned)(tm.tm_year + 1900) % 10000, (unsigned)(tm.tm_mon + 1) % 100,
             (unsigned)tm.tm_mday % 100, (unsigned)tm.tm_hour % 100, (unsigned)tm.tm_min % 100,
             (unsigned)tm.tm_sec % 100);
}

bool tls_cert_names(const X509 *cert, const char *name)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    size_t n = strlen(name);
    bool found = false;

    for (int i = 0; names && i < sk_GENERAL_NAME_num(names) && !found; i++) {
        const GENERAL_NAME *g = sk_GENERAL_NAME_value(names, i);

        /* Compared with its length: a name with a NUL in it is another name. */
        found = g->type == GEN_DNS && (size_t)ASN1_STRING_length(g->d.dNSName) == n &&
                memcmp(ASN1_STRING_get0_data(g->d.dNSName), name, n) == 0;
    }
    GENERAL_NAMES_free(names);
    return found;
}

/* What every peer would refuse is refused here, where its cause can be seen. */
static enum tern_err judge_own(const struct tls *tls, SSL_CTX *ctx, char *why, size_t cap)
{
    const char *file = tls->config.cert;
    X509 *cert = SSL_CTX_get0_certificate(ctx);

    if (X509_cmp_current_time(X509_get0_notAfter(cert)) <= 0)
        return fail(why, cap, file, "the certificate has expired");
    if (X509_cmp_current_time(X509_get0_notBefore(cert)) >= 0)
        return fail(why, cap, file, "the certificate is not valid yet");
    if (!tls_cert_names(cert, tls->config.node))
        return fail(why, cap, file,
                    "the certificate has no subjectAltName DNS:%s, the name of this node",
                    tls->config.node);
    if (X509_check_purpose(cert, X509_PURPOSE_SSL_CLIENT, 0) != 1 ||
        X509_check_purpose(cert, X509_PURPOSE_SSL_SERVER, 0) != 1)
        return fail(why, cap, file,
                    "the certificate must be for client and server: daemons are both");
    return TERN_OK;
}

/* ---- contexts ---- */

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

static enum tern_err load(const struct tls *tls, SSL_CTX **ret, char *why, size_t cap)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());
    enum tern_err err;

    if (!ctx || !rules(ctx)) {
        SSL_CTX_free(ctx);
        ERR_clear_error();
        snprintf(why, cap, "tls: no memory for a context");
        return TERN_INTERNAL;
    }
    err = read_certs(ctx, tls->config.ca, trust, why, cap);
    if (err == TERN_OK)
        err = read_certs(ctx, tls->config.cert, present, why, cap);
    if (err == TERN_OK)
        err = read_key(ctx, tls->config.key, why, cap);
    if (err == TERN_OK)
        err = judge_own(tls, ctx, why, cap);
    if (err != TERN_OK) {
        SSL_CTX_free(ctx);
        return err;
    }
    *ret = ctx;
    return TERN_OK;
}

static void use(struct tls *tls, SSL_CTX *ctx)
{
    SSL_CTX_free(tls->ctx); /* what sessions still hold lives on */
    tls->ctx = ctx;
    tls_time_text(X509_get0_notAfter(SSL_CTX_get0_certificate(ctx)), tls->stats.not_after);
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
    struct tls *tls = calloc(1, sizeof(*tls));
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
        err = load(tls, &ctx, why, cap);
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

enum tern_err tls_reload(struct tls *tls, char *why, size_t cap)
{
    SSL_CTX *ctx;
    enum tern_err err = load(tls, &ctx, why, cap);

    if (err != TERN_OK) {
        tls->stats.reloads_failed++;
        return err;
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
    free(tls);
}

/* Certificates and keys: reads the files, checks our own certificate, finds names. See
 * tls_openssl.h. Invariant: files are read by plain system calls into one static buffer, because a
 * C stream would allocate; no key stays in that buffer. */
#include "shell/tls/tls.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <openssl/crypto.h>
#include <openssl/pem.h>

#include "base/err.h"
#include "shell/tls/tls_openssl.h"

static uint8_t file_bytes[TLS_FILE_MAX + 1];

static enum tern_err tls_file_fail(char *why, size_t cap, const char *file, const char *format, ...)
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
        return tls_file_fail(why, cap, path, "%s", strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return tls_file_fail(why, cap, path, "is no file");
    }
    while (n < sizeof(file_bytes) && (got = read(fd, file_bytes + n, sizeof(file_bytes) - n)) > 0)
        n += (size_t)got;
    close(fd);
    if (got < 0)
        return tls_file_fail(why, cap, path, "%s", strerror(errno));
    if (n > TLS_FILE_MAX)
        return tls_file_fail(why, cap, path, "is larger than %u bytes", TLS_FILE_MAX);
    *ret_n = n;
    return TERN_OK;
}

/* A daemon has nobody to ask for a pass phrase. */
static int no_phrase(char *buf, int size, int writing, void *ctx)
{
    (void)buf, (void)size, (void)writing, (void)ctx;
    return -1;
}

bool tls_trust_cert(SSL_CTX *ctx, X509 *cert, uint32_t i)
{
    (void)i;
    return X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), cert) == 1;
}

bool tls_present_cert(SSL_CTX *ctx, X509 *cert, uint32_t i)
{
    return (i == 0 ? SSL_CTX_use_certificate(ctx, cert)
                   : (int)SSL_CTX_add1_chain_cert(ctx, cert)) == 1;
}

enum tern_err tls_read_certs(SSL_CTX *ctx, const char *path, tls_take_cert *take, char *why,
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
        return tls_file_fail(why, cap, path,
                             "holds no certificate in PEM, or one that cannot be used");
    ERR_clear_error();
    return TERN_OK;
}

enum tern_err tls_read_key(SSL_CTX *ctx, const char *path, char *why, size_t cap)
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
        return tls_file_fail(why, cap, path, "holds no private key in PEM without a pass phrase");
    ok = SSL_CTX_use_PrivateKey(ctx, key) == 1 && SSL_CTX_check_private_key(ctx) == 1;
    EVP_PKEY_free(key);
    return ok ? TERN_OK : tls_file_fail(why, cap, path, "is not the key of the certificate");
}

void tls_time_text(const ASN1_TIME *at, char ret[TLS_TIME_BYTES])
{
    struct tm tm;

    if (ASN1_TIME_to_tm(at, &tm) != 1)
        memset(&tm, 0, sizeof(tm));
    if (strftime(ret, TLS_TIME_BYTES, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        ret[0] = '\0';
}

int64_t tls_time_s(const ASN1_TIME *at)
{
    struct tm tm;

    return ASN1_TIME_to_tm(at, &tm) == 1 ? (int64_t)timegm(&tm) : 0;
}

bool tls_own_trusted(SSL_CTX *ctx)
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

/* Compares the length too: a name with a NUL in it is another name. */
static bool is_name(const ASN1_STRING *dns, const char *name)
{
    size_t n = strlen(name); /* 0: a free slot of peers */

    return n > 0 && (size_t)ASN1_STRING_length(dns) == n &&
           memcmp(ASN1_STRING_get0_data(dns), name, n) == 0;
}

bool tls_cert_names(const X509 *cert, const char *const *name, uint32_t n)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    bool found = false;

    for (int i = 0; names && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *g = sk_GENERAL_NAME_value(names, i);

        for (uint32_t k = 0; g->type == GEN_DNS && k < n && !found; k++)
            found = is_name(g->d.dNSName, name[k]);
    }
    GENERAL_NAMES_free(names);
    return found;
}

static bool in_name(unsigned char c)
{
    return isalnum(c) || (c != '\0' && strchr("-_.*", c));
}

void tls_cert_names_text(const X509 *cert, char *ret, size_t cap)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    size_t at = 0;

    for (int i = 0; names && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *g = sk_GENERAL_NAME_value(names, i);
        const unsigned char *name = g->type == GEN_DNS ? ASN1_STRING_get0_data(g->d.dNSName) : NULL;
        size_t n = name ? (size_t)ASN1_STRING_length(g->d.dNSName) : 0;

        if (n > 0 && at > 0 && at + 1 < cap)
            ret[at++] = '+';
        for (size_t k = 0; k < n && at + 1 < cap; k++)
            ret[at++] = in_name(name[k]) ? (char)name[k] : '?';
    }
    ret[at] = '\0';
    GENERAL_NAMES_free(names);
}

enum tern_err tls_judge_own(const struct tls_config *config, const char *file, SSL_CTX *ctx,
                            char *why, size_t cap)
{
    X509 *cert = SSL_CTX_get0_certificate(ctx);

    if (X509_cmp_current_time(X509_get0_notAfter(cert)) <= 0)
        return tls_file_fail(why, cap, file, "the certificate has expired");
    if (X509_cmp_current_time(X509_get0_notBefore(cert)) >= 0)
        return tls_file_fail(why, cap, file, "the certificate is not valid yet");
    if (!tls_cert_names(cert, &config->node, 1))
        return tls_file_fail(why, cap, file,
                             "the certificate has no subjectAltName DNS:%s, the name of this node",
                             config->node);
    if (X509_check_purpose(cert, X509_PURPOSE_SSL_CLIENT, 0) != 1 ||
        X509_check_purpose(cert, X509_PURPOSE_SSL_SERVER, 0) != 1)
        return tls_file_fail(why, cap, file,
                             "the certificate must allow both client and server use");
    return TERN_OK;
}

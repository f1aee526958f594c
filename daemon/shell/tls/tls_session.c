/* One session: handshake, records and their refusals. See tls.h. OpenSSL reads from the bytes
 * passed to tls_take and writes straight to `send`; a buffer of one record keeps a record that is
 * not whole yet. Invariant: plain bytes are returned only after the handshake has ended and the
 * certificate has the name. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "proto/frame.h"
#include "shell/tls/tls_openssl.h"

static int bio_read(BIO *bio, char *to, size_t n, size_t *ret_n)
{
    struct tls_session *s = BIO_get_data(bio);

    BIO_clear_retry_flags(bio);
    if (s->in_n == 0) {
        BIO_set_retry_read(bio);
        return 0;
    }
    if (n > s->in_n)
        n = s->in_n;
    memcpy(to, s->in, n);
    s->in += n;
    s->in_n -= n;
    *ret_n = n;
    return 1;
}

static int bio_write(BIO *bio, const char *from, size_t n, size_t *ret_n)
{
    struct tls_session *s = BIO_get_data(bio);

    BIO_clear_retry_flags(bio);
    if (s->send_full || !s->send(s->ctx, (const uint8_t *)from, n)) {
        s->send_full = true;
        return 0;
    }
    *ret_n = n;
    return 1;
}

static long bio_ctrl(BIO *bio, int cmd, long num, void *ptr)
{
    (void)bio, (void)num, (void)ptr;
    return cmd == BIO_CTRL_FLUSH ? 1 : 0;
}

static int bio_create(BIO *bio)
{
    BIO_set_init(bio, 1);
    return 1;
}

BIO_METHOD *tls_bio_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tern stream");

    if (m && BIO_meth_set_read_ex(m, bio_read) && BIO_meth_set_write_ex(m, bio_write) &&
        BIO_meth_set_ctrl(m, bio_ctrl) && BIO_meth_set_create(m, bio_create))
        return m;
    BIO_meth_free(m);
    return NULL;
}

/* Maps OpenSSL's verdict on a certificate to a refusal. */
static enum tls_refusal refusal_of_verify(long result)
{
    switch (result) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID: return TLS_EXPIRED;
    case X509_V_ERR_HOSTNAME_MISMATCH: return TLS_WRONG_NAME;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_CERT_CHAIN_TOO_LONG:
    case X509_V_ERR_INVALID_CA: return TLS_WRONG_CA;
    default: return TLS_BAD_CERTIFICATE;
    }
}

/* Maps an error of OpenSSL to a refusal; TLS_REFUSALS: an error that is not about the peer. */
static enum tls_refusal refusal_of_error(unsigned long e)
{
    int reason = ERR_GET_REASON(e);

    if (reason == ERR_R_MALLOC_FAILURE)
        return TLS_NO_ROOM;
    if (ERR_GET_LIB(e) != ERR_LIB_SSL)
        return TLS_REFUSALS;
    switch (reason) {
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE: return TLS_NO_CERTIFICATE;
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION: return TLS_OLD_VERSION;
    case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC:
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_BAD_RECORD_TYPE:
    case SSL_R_BAD_LENGTH:
    case SSL_R_RECORD_LENGTH_MISMATCH:
    case SSL_R_RECORD_TOO_SMALL:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_ENCRYPTED_LENGTH_TOO_LONG:
    case SSL_R_DATA_LENGTH_TOO_LONG:
    case SSL_R_UNEXPECTED_RECORD:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST: return TLS_BAD_RECORD;
    default: return reason > SSL_AD_REASON_OFFSET ? TLS_PEER_REFUSED : TLS_REFUSALS;
    }
}

static enum tls_refusal refusal_now(struct tls_session *s)
{
    enum tls_refusal found = TLS_REFUSALS;
    long result = SSL_get_verify_result(s->ssl);

    s->detail = "";
    for (unsigned long e = ERR_get_error(); e; e = ERR_get_error()) {
        const char *text = ERR_reason_error_string(e);

        if (found == TLS_REFUSALS)
            found = refusal_of_error(e);
        if (text)
            s->detail = text;
    }
    if (s->send_full || found == TLS_NO_ROOM)
        return TLS_NO_ROOM;
    if (s->wrong_name) {
        s->detail = s->tls->detail;
        return TLS_WRONG_NAME;
    }
    if (s->state == TLS_SESSION_HANDSHAKING && result != X509_V_OK) {
        s->detail = X509_verify_cert_error_string(result);
        return refusal_of_verify(result);
    }
    if (found != TLS_REFUSALS)
        return found;
    return s->state == TLS_SESSION_HANDSHAKING ? TLS_BAD_HANDSHAKE : TLS_BAD_RECORD;
}

static void handshake_over(struct tls_session *s)
{
    if (s->state == TLS_SESSION_HANDSHAKING && !s->peer)
        s->tls->handshakes--;
}

static enum tls_got fail_session(struct tls_session *s, enum tls_refusal why)
{
    handshake_over(s);
    s->refusal = why;
    tls_session_state_move(&s->state, TLS_SESSION_BROKEN);
    ERR_clear_error();
    return TLS_FAILED;
}

/* ---- certificates ---- */

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

/* Writes the DNS names, joined by +; a character that no name may have becomes a ?. */
static void cert_names_text(const X509 *cert, char *ret, size_t cap)
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

void tls_time_text(const ASN1_TIME *at, char ret[TLS_TIME_BYTES])
{
    struct tm tm;

    if (ASN1_TIME_to_tm(at, &tm) != 1)
        memset(&tm, 0, sizeof(tm));
    if (strftime(ret, TLS_TIME_BYTES, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        ret[0] = '\0';
}

static bool names_allowed_peer(const struct tls_session *s, const X509 *cert)
{
    const struct tls_config *config = &s->tls->config;

    return s->peer ? tls_cert_names(cert, &s->peer, 1)
                   : tls_cert_names(cert, config->peers, config->npeers);
}

static void tell_names(struct tls_session *s, const X509 *cert)
{
    char names[TLS_DETAIL_BYTES / 2];

    cert_names_text(cert, names, sizeof names);
    if (s->peer)
        snprintf(s->tls->detail, sizeof s->tls->detail,
                 "its certificate names \"%s\", and this peer is configured as \"%s\"", names,
                 s->peer);
    else
        snprintf(s->tls->detail, sizeof s->tls->detail,
                 "its certificate names \"%s\", which is not a peer of this node", names);
}

/* OpenSSL calls this for each certificate of the chain, the peer's last, after its own checks. */
int tls_verify(int ok, X509_STORE_CTX *store)
{
    const SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct tls_session *s = SSL_get_app_data(ssl);

    if (!ok || X509_STORE_CTX_get_error_depth(store) > 0)
        return ok;
    if (names_allowed_peer(s, X509_STORE_CTX_get_current_cert(store)))
        return 1;
    s->wrong_name = true;
    tell_names(s, X509_STORE_CTX_get_current_cert(store));
    X509_STORE_CTX_set_error(store, X509_V_ERR_HOSTNAME_MISMATCH);
    return 0;
}

bool tls_names(const struct tls_session *s, const char *name)
{
    check(s->state == TLS_SESSION_OPEN);
    return tls_cert_names(SSL_get0_peer_certificate(s->ssl), &name, 1);
}

static bool attach(struct tls_session *s)
{
    BIO *bio = s->ssl ? BIO_new(s->tls->bio) : NULL;

    if (!bio)
        return false;
    BIO_set_data(bio, s);
    SSL_set_bio(s->ssl, bio, bio);
    if (SSL_set_app_data(s->ssl, s) != 1)
        return false;
    if (s->peer)
        SSL_set_connect_state(s->ssl);
    else
        SSL_set_accept_state(s->ssl);
    return true;
}

enum tern_err tls_open(struct tls *tls, const char *peer, tls_send *send, void *ctx,
                       struct tls_session **ret)
{
    struct tls_session *s = tls->free;

    if (!s || (!peer && tls->handshakes >= TLS_HANDSHAKES_MAX))
        return TERN_BUSY;
    tls->free = s->next_free;
    *s = (struct tls_session){.tls = tls, .peer = peer, .send = send, .ctx = ctx, .detail = ""};
    s->ssl = SSL_new(tls->ctx);
    tls_session_state_move(&s->state, TLS_SESSION_HANDSHAKING);
    if (!peer)
        tls->handshakes++;
    if (!attach(s)) {
        tls_close(s);
        ERR_clear_error();
        return TERN_BUSY;
    }
    tls->stats.handshakes++;
    *ret = s;
    return TERN_OK;
}

void tls_close(struct tls_session *s)
{
    if (!s || s->state == TLS_SESSION_UNUSED)
        return;
    handshake_over(s);
    SSL_free(s->ssl);
    s->ssl = NULL;
    tls_session_state_move(&s->state, TLS_SESSION_UNUSED);
    s->next_free = s->tls->free;
    s->tls->free = s;
}

bool tls_secured(const struct tls_session *s)
{
    return s->state == TLS_SESSION_OPEN;
}

enum tls_refusal tls_refusal_of(const struct tls_session *s)
{
    return s->refusal;
}

const char *tls_detail(const struct tls_session *s)
{
    return s->detail;
}

void tls_peer(const struct tls_session *s, struct tls_peer *ret)
{
    check(s->state == TLS_SESSION_OPEN);
    ret->version = SSL_get_version(s->ssl);
    ret->cipher = SSL_get_cipher_name(s->ssl);
    tls_time_text(X509_get0_notAfter(SSL_get0_peer_certificate(s->ssl)), ret->not_after);
}

/* Answers clear text with an alert, to show that TLS is used: OpenSSL ignores non-records. */
static enum tls_got refuse_clear_text(struct tls_session *s)
{
    static const uint8_t alert[] = {21, 3, 3, 0, 2, 2, 70}; /* fatal: protocol_version */

    s->detail = "the other side does not use TLS: set `tls` there, or `insecure_peers` on both";
    (void)s->send(s->ctx, alert, sizeof alert);
    return fail_session(s, TLS_CLEAR_TEXT);
}

static enum tls_got handshake(struct tls_session *s)
{
    size_t before = s->in_n;
    struct frame_header h;
    const X509 *cert;
    int rc;

    if (s->taken == 0 && s->in_n >= FRAME_HEADER_BYTES &&
        frame_decode(s->in, FRAME_BODY_MAX, &h) == TERN_OK)
        return refuse_clear_text(s);
    rc = SSL_do_handshake(s->ssl);

    s->taken += before - s->in_n;
    if (rc != 1) {
        if (SSL_get_error(s->ssl, rc) != SSL_ERROR_WANT_READ || s->send_full)
            return fail_session(s, refusal_now(s));
        return s->taken > TLS_HANDSHAKE_BYTES_MAX ? fail_session(s, TLS_NO_ROOM) : TLS_WANTS;
    }
    cert = SSL_get0_peer_certificate(s->ssl);
    if (!cert || SSL_get_verify_result(s->ssl) != X509_V_OK || !names_allowed_peer(s, cert))
        return fail_session(s, cert ? TLS_WRONG_NAME : TLS_NO_CERTIFICATE);
    handshake_over(s);
    tls_session_state_move(&s->state, TLS_SESSION_OPEN);
    return TLS_SECURED;
}

static enum tls_got records(struct tls_session *s, size_t plain_max, const uint8_t **ret_plain,
                            size_t *ret_n)
{
    size_t room = sizeof(s->tls->plain);
    int rc = SSL_read_ex(s->ssl, s->tls->plain, plain_max < room ? plain_max : room, ret_n);

    if (rc == 1) {
        *ret_plain = s->tls->plain;
        return TLS_BYTES;
    }
    switch (SSL_get_error(s->ssl, rc)) {
    case SSL_ERROR_WANT_READ: return s->send_full ? fail_session(s, TLS_NO_ROOM) : TLS_WANTS;
    case SSL_ERROR_ZERO_RETURN:
        tls_session_state_move(&s->state, TLS_SESSION_BROKEN);
        return TLS_ENDED;
    default: return fail_session(s, refusal_now(s));
    }
}

enum tls_got tls_take(struct tls_session *s, const uint8_t **in, size_t *n, size_t plain_max,
                      const uint8_t **ret_plain, size_t *ret_n)
{
    enum tls_got got;

    check(s->state == TLS_SESSION_HANDSHAKING || s->state == TLS_SESSION_OPEN);
    ERR_clear_error();
    s->in = *in;
    s->in_n = *n;
    got = s->state == TLS_SESSION_HANDSHAKING ? handshake(s)
                                              : records(s, plain_max, ret_plain, ret_n);
    *in = s->in;
    *n = s->in_n;
    s->in = NULL;
    s->in_n = 0;
    return got;
}

bool tls_put(struct tls_session *s, const uint8_t *plain, size_t n)
{
    size_t put = 0;

    check(s->state == TLS_SESSION_OPEN);
    ERR_clear_error();
    if (SSL_write_ex(s->ssl, plain, n, &put) == 1 && put == n && !s->send_full)
        return true;
    fail_session(s, refusal_now(s));
    return false;
}

const char *tls_refusal_name(enum tls_refusal why)
{
    static const char *const names[TLS_REFUSALS] = {
        [TLS_NO_CERTIFICATE] = "no_certificate",   [TLS_WRONG_CA] = "wrong_ca",
        [TLS_WRONG_NAME] = "wrong_name",           [TLS_EXPIRED] = "expired",
        [TLS_BAD_CERTIFICATE] = "bad_certificate", [TLS_OLD_VERSION] = "old_version",
        [TLS_BAD_HANDSHAKE] = "bad_handshake",     [TLS_BAD_RECORD] = "bad_record",
        [TLS_PEER_REFUSED] = "refused_by_peer",    [TLS_TIMEOUT] = "timeout",
        [TLS_CLEAR_TEXT] = "clear_text",           [TLS_NO_ROOM] = "no_room",
    };

    check(why < TLS_REFUSALS);
    return names[why];
}

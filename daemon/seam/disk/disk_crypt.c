/* See disk_crypt.h. A failed OpenSSL call is remembered, and then the end of the message fails. */
#include "seam/disk/disk_crypt.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "base/check.h"

#define ID_LABEL "tern disk key id"

static const char *const labels[DISK_KEYS] = {
    [DISK_KEY_BODIES] = "tern disk bodies",
    [DISK_KEY_HEADS] = "tern disk heads",
};

struct disk_crypt {
    EVP_CIPHER_CTX *ctx[DISK_KEYS][DISK_WORKS]; /* owned; each has its key */
    EVP_CIPHER_CTX *now;                        /* borrowed: of the current message; NULL: none */
    bool failed;
    uint64_t key_id;
};

static bool derive(const uint8_t key[DISK_KEY_BYTES], const char *label,
                   uint8_t ret[DISK_KEY_BYTES])
{
    unsigned n = 0;

    return HMAC(EVP_sha256(), key, DISK_KEY_BYTES, (const uint8_t *)label, strlen(label), ret,
                &n) &&
           n == DISK_KEY_BYTES;
}

static bool make_id(const uint8_t key[DISK_KEY_BYTES], uint64_t *ret)
{
    uint8_t bytes[DISK_KEY_BYTES];

    if (!derive(key, ID_LABEL, bytes))
        return false;
    memcpy(ret, bytes, sizeof *ret);
    *ret += *ret == 0;
    return true;
}

static bool make_ctx(struct disk_crypt *c, enum disk_key k, const uint8_t key[DISK_KEY_BYTES])
{
    for (int work = 0; work < DISK_WORKS; work++) {
        EVP_CIPHER_CTX *ctx = c->ctx[k][work] = EVP_CIPHER_CTX_new();

        if (!ctx ||
            EVP_CipherInit_ex(ctx, EVP_aes_256_gcm(), NULL, key, NULL, work == DISK_SEAL) != 1 ||
            EVP_CIPHER_CTX_get_iv_length(ctx) != DISK_NONCE_BYTES)
            return false;
    }
    return true;
}

static bool make_keys(struct disk_crypt *c, const uint8_t key[DISK_KEY_BYTES])
{
    uint8_t derived[DISK_KEY_BYTES];
    bool ok = make_id(key, &c->key_id);

    for (int k = 0; k < DISK_KEYS && ok; k++)
        ok = derive(key, labels[k], derived) && make_ctx(c, (enum disk_key)k, derived);
    OPENSSL_cleanse(derived, sizeof derived);
    return ok;
}

enum tern_err disk_crypt_create(const uint8_t key[DISK_KEY_BYTES], struct disk_crypt **ret,
                                const char **ret_why)
{
    struct disk_crypt *c = calloc(1, sizeof *c);

    *ret = NULL;
    if (c && make_keys(c, key)) {
        *ret = c;
        return TERN_OK;
    }
    disk_crypt_destroy(c);
    *ret_why = "OpenSSL provides no AES-256-GCM: check its configuration, and the free memory";
    return TERN_INTERNAL;
}

void disk_crypt_destroy(struct disk_crypt *c)
{
    if (!c)
        return;
    for (int k = 0; k < DISK_KEYS; k++)
        for (int work = 0; work < DISK_WORKS; work++)
            EVP_CIPHER_CTX_free(c->ctx[k][work]);
    free(c);
}

uint64_t disk_crypt_key_id(const struct disk_crypt *c)
{
    return c ? c->key_id : 0;
}

bool disk_crypt_fresh(const struct disk_crypt *c, uint64_t *ret_key_id,
                      uint8_t ret_nonce[DISK_NONCE_BYTES])
{
    *ret_key_id = c->key_id;
    return RAND_bytes(ret_nonce, DISK_NONCE_BYTES) == 1;
}

void disk_crypt_begin(struct disk_crypt *c, enum disk_key key, enum disk_work work,
                      const uint8_t nonce[DISK_NONCE_BYTES], const uint8_t *associated, size_t n)
{
    EVP_CIPHER_CTX *ctx = c->ctx[key][work];
    int out, as_made = -1;

    check(n <= INT_MAX);
    c->now = ctx;
    c->failed = EVP_CipherInit_ex(ctx, NULL, NULL, NULL, nonce, as_made) != 1 ||
                EVP_CipherUpdate(ctx, NULL, &out, associated, (int)n) != 1;
}

void disk_crypt_update(struct disk_crypt *c, void *bytes, size_t n)
{
    uint8_t *at = bytes;

    check(c->now);
    while (n > 0 && !c->failed) {
        int take = n < INT_MAX ? (int)n : INT_MAX, out = 0;

        c->failed = EVP_CipherUpdate(c->now, at, &out, at, take) != 1 || out != take;
        at += take;
        n -= (size_t)take;
    }
}

/* Ends the current message. */
static EVP_CIPHER_CTX *end(struct disk_crypt *c, int sealed)
{
    EVP_CIPHER_CTX *ctx = c->now;

    check(ctx && EVP_CIPHER_CTX_is_encrypting(ctx) == sealed);
    c->now = NULL;
    return ctx;
}

bool disk_seal_end(struct disk_crypt *c, uint8_t ret_tag[DISK_TAG_BYTES])
{
    EVP_CIPHER_CTX *ctx = end(c, 1);
    uint8_t none[DISK_TAG_BYTES];
    int out = 0;

    return !c->failed && EVP_CipherFinal_ex(ctx, none, &out) == 1 && out == 0 &&
           EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, DISK_TAG_BYTES, ret_tag) == 1;
}

bool disk_open_end(struct disk_crypt *c, const uint8_t tag[DISK_TAG_BYTES])
{
    EVP_CIPHER_CTX *ctx = end(c, 0);
    uint8_t want[DISK_TAG_BYTES], none[DISK_TAG_BYTES];
    int out = 0;

    memcpy(want, tag, sizeof want);
    return !c->failed &&
           EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, DISK_TAG_BYTES, want) == 1 &&
           EVP_CipherFinal_ex(ctx, none, &out) == 1 && out == 0;
}

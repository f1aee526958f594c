/* See disk_crypt.h. A call that OpenSSL fails is remembered until the end, which fails then. */
#include "seam/disk/disk_crypt.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include "base/check.h"

#define ID_LABEL "tern disk key id"

enum work { IDLE, SEALING, OPENING };

struct disk_crypt {
    EVP_CIPHER_CTX *seal, *open; /* owned; each has the key */
    enum work work;
    bool failed;
    uint64_t key_id;
};

bool disk_crypt_built(void)
{
    return true;
}

static bool make_id(const uint8_t key[DISK_KEY_BYTES], uint64_t *ret)
{
    uint8_t text[sizeof ID_LABEL + DISK_KEY_BYTES], digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    bool ok;

    memcpy(text, ID_LABEL, sizeof ID_LABEL);
    memcpy(text + sizeof ID_LABEL, key, DISK_KEY_BYTES);
    ok = EVP_Digest(text, sizeof text, digest, &n, EVP_sha256(), NULL) == 1 && n >= sizeof *ret;
    OPENSSL_cleanse(text, sizeof text);
    memcpy(ret, digest, sizeof *ret);
    *ret += *ret == 0;
    return ok;
}

static bool key_set(EVP_CIPHER_CTX *ctx, const uint8_t key[DISK_KEY_BYTES], int seals)
{
    return ctx && EVP_CipherInit_ex(ctx, EVP_aes_256_gcm(), NULL, key, NULL, seals) == 1 &&
           EVP_CIPHER_CTX_get_iv_length(ctx) == DISK_NONCE_BYTES;
}

enum tern_err disk_crypt_create(const uint8_t key[DISK_KEY_BYTES], struct disk_crypt **ret,
                                const char **ret_why)
{
    struct disk_crypt *c = calloc(1, sizeof *c);

    *ret = NULL;
    if (c) {
        c->seal = EVP_CIPHER_CTX_new();
        c->open = EVP_CIPHER_CTX_new();
        if (key_set(c->seal, key, 1) && key_set(c->open, key, 0) && make_id(key, &c->key_id)) {
            *ret = c;
            return TERN_OK;
        }
    }
    disk_crypt_destroy(c);
    *ret_why = "OpenSSL gives no AES-256-GCM: look at its configuration, and at free memory";
    return TERN_INTERNAL;
}

void disk_crypt_destroy(struct disk_crypt *c)
{
    if (!c)
        return;
    EVP_CIPHER_CTX_free(c->seal);
    EVP_CIPHER_CTX_free(c->open);
    free(c);
}

uint64_t disk_crypt_key_id(const struct disk_crypt *c)
{
    return c->key_id;
}

bool disk_crypt_fresh(const struct disk_crypt *c, uint64_t *ret_key_id,
                      uint8_t ret_nonce[DISK_NONCE_BYTES])
{
    *ret_key_id = c->key_id;
    return RAND_bytes(ret_nonce, DISK_NONCE_BYTES) == 1;
}

static void begin(struct disk_crypt *c, enum work work, const uint8_t *nonce,
                  const uint8_t *associated, size_t n)
{
    EVP_CIPHER_CTX *ctx = work == SEALING ? c->seal : c->open;
    int out;

    check(n <= INT_MAX);
    c->work = work;
    c->failed = EVP_CipherInit_ex(ctx, NULL, NULL, NULL, nonce, work == SEALING) != 1 ||
                EVP_CipherUpdate(ctx, NULL, &out, associated, (int)n) != 1;
}

void disk_seal_begin(struct disk_crypt *c, const uint8_t nonce[DISK_NONCE_BYTES],
                     const uint8_t *associated, size_t n)
{
    begin(c, SEALING, nonce, associated, n);
}

void disk_open_begin(struct disk_crypt *c, const uint8_t nonce[DISK_NONCE_BYTES],
                     const uint8_t *associated, size_t n)
{
    begin(c, OPENING, nonce, associated, n);
}

void disk_crypt_update(struct disk_crypt *c, void *bytes, size_t n)
{
    EVP_CIPHER_CTX *ctx = c->work == SEALING ? c->seal : c->open;
    uint8_t *at = bytes;

    check(c->work != IDLE);
    while (n > 0 && !c->failed) {
        int take = n < INT_MAX ? (int)n : INT_MAX, out = 0;

        c->failed = EVP_CipherUpdate(ctx, at, &out, at, take) != 1 || out != take;
        at += take;
        n -= (size_t)take;
    }
}

bool disk_seal_end(struct disk_crypt *c, uint8_t ret_tag[DISK_TAG_BYTES])
{
    uint8_t none[DISK_TAG_BYTES];
    int out = 0;

    check(c->work == SEALING);
    c->work = IDLE;
    return !c->failed && EVP_CipherFinal_ex(c->seal, none, &out) == 1 && out == 0 &&
           EVP_CIPHER_CTX_ctrl(c->seal, EVP_CTRL_AEAD_GET_TAG, DISK_TAG_BYTES, ret_tag) == 1;
}

bool disk_open_end(struct disk_crypt *c, const uint8_t tag[DISK_TAG_BYTES])
{
    uint8_t want[DISK_TAG_BYTES], none[DISK_TAG_BYTES];
    int out = 0;

    check(c->work == OPENING);
    c->work = IDLE;
    memcpy(want, tag, sizeof want);
    return !c->failed &&
           EVP_CIPHER_CTX_ctrl(c->open, EVP_CTRL_AEAD_SET_TAG, DISK_TAG_BYTES, want) == 1 &&
           EVP_CipherFinal_ex(c->open, none, &out) == 1 && out == 0;
}

/* A build without OpenSSL: no context is ever made. See disk_crypt.h. */
#include "base/check.h"
#include "seam/disk/disk_crypt.h"

bool disk_crypt_built(void)
{
    return false;
}

enum tern_err disk_crypt_create(const uint8_t key[DISK_KEY_BYTES], struct disk_crypt **ret,
                                const char **ret_why)
{
    (void)key;
    *ret = NULL;
    *ret_why = "this ternd was built without OpenSSL: it cannot encrypt";
    return TERN_UNSUPPORTED;
}

void disk_crypt_destroy(struct disk_crypt *c)
{
    check(!c);
}

uint64_t disk_crypt_key_id(const struct disk_crypt *c)
{
    (void)c;
    return 0;
}

bool disk_crypt_fresh(const struct disk_crypt *c, uint64_t *ret_key_id,
                      uint8_t ret_nonce[DISK_NONCE_BYTES])
{
    (void)c, (void)ret_nonce;
    *ret_key_id = 0;
    return false;
}

void disk_seal_begin(struct disk_crypt *c, enum disk_key key, const uint8_t nonce[DISK_NONCE_BYTES],
                     const uint8_t *associated, size_t n)
{
    (void)c, (void)key, (void)nonce, (void)associated, (void)n;
}

bool disk_seal_end(struct disk_crypt *c, uint8_t ret_tag[DISK_TAG_BYTES])
{
    (void)c, (void)ret_tag;
    return false;
}

void disk_open_begin(struct disk_crypt *c, enum disk_key key, const uint8_t nonce[DISK_NONCE_BYTES],
                     const uint8_t *associated, size_t n)
{
    disk_seal_begin(c, key, nonce, associated, n);
}

bool disk_open_end(struct disk_crypt *c, const uint8_t tag[DISK_TAG_BYTES])
{
    (void)c, (void)tag;
    return false;
}

void disk_crypt_update(struct disk_crypt *c, void *bytes, size_t n)
{
    (void)c, (void)bytes, (void)n;
}

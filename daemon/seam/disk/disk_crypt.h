/* Encrypts bodies and heads with AES-256-GCM, by OpenSSL. A context is made at start, belongs to
 * one thread at a time and has at most one current message: begin, then update with its bytes in
 * order, in pieces of any length and in place, then an end. Nothing allocates in between.
 *
 * The given key itself encrypts nothing: each of the keys below is the HMAC-SHA256 of its label
 * under the given key. So one nonce may serve a body and the head in front of it.
 *
 * Invariant: opened bytes are not trusted before disk_open_end returns true. */
#ifndef SEAM_DISK_CRYPT_H
#define SEAM_DISK_CRYPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tern_err.h"

#define DISK_KEY_BYTES   32
#define DISK_NONCE_BYTES 12
#define DISK_TAG_BYTES   16

/* BODIES: of extents and of footers. HEADS: of extents alone. */
enum disk_key { DISK_KEY_BODIES, DISK_KEY_HEADS, DISK_KEYS };
enum disk_work { DISK_OPEN, DISK_SEAL, DISK_WORKS };

struct disk_crypt;

/* INTERNAL: OpenSSL has no AES-256-GCM, or no memory. */
enum tern_err disk_crypt_create(const uint8_t key[DISK_KEY_BYTES], struct disk_crypt **ret,
                                const char **ret_why);
void disk_crypt_destroy(struct disk_crypt *c); /* NULL: nothing */
/* A number that identifies the key without revealing it; never 0. c NULL: 0, for no key. */
uint64_t disk_crypt_key_id(const struct disk_crypt *c);

/* Fills in a random nonce and the key's id. Returns false if there are no random numbers; do not
 * seal then. */
bool disk_crypt_fresh(const struct disk_crypt *c, uint64_t *ret_key_id,
                      uint8_t ret_nonce[DISK_NONCE_BYTES]);

/* No nonce may be used twice under one key to seal. */
void disk_crypt_begin(struct disk_crypt *c, enum disk_key key, enum disk_work work,
                      const uint8_t nonce[DISK_NONCE_BYTES], const uint8_t *associated, size_t n);
/* Returns false if sealing failed: the bytes must not be written. */
bool disk_seal_end(struct disk_crypt *c, uint8_t ret_tag[DISK_TAG_BYTES]);

/* Returns false if the bytes, the key or the associated data differ from those that were sealed. */
bool disk_open_end(struct disk_crypt *c, const uint8_t tag[DISK_TAG_BYTES]);

void disk_crypt_update(struct disk_crypt *c, void *bytes, size_t n); /* for seal and open */

/* disk_key.c: reads the file that holds the key, 32 raw bytes, or 64 hexadecimal digits with or
 * without a line end. Only its owner may be able to read it. DISK: it cannot be read. DENIED:
 * others may read it. INVALID: it holds no key. `why` names the file, and what to do. For a start
 * and for a verification: it blocks. */
#define DISK_KEY_WHY 512 /* bytes of `why`, with the NUL */
enum tern_err disk_key_read(const char *path, uint8_t ret[DISK_KEY_BYTES], char why[DISK_KEY_WHY]);

#endif

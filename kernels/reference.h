/* Each kernel's work, done to host memory: the addresses in the arguments are the host's. For tests
 * and callers without a device. Arguments are as kernels_prepare returned them. Any thread. */
#ifndef KERNELS_REFERENCE_H
#define KERNELS_REFERENCE_H

#include "kernels/kernels.h"

void reference_gather(const struct kernels_pages *a);
void reference_scatter(const struct kernels_pages *a);
void reference_zero(const struct kernels_pages *a);
void reference_checksum_blocks(const struct kernels_checksum *a);
void reference_checksum_units(const struct kernels_checksum *a);
void reference_reshard(const struct kernels_reshard *a);
void reference_fp8_pack(const struct kernels_fp8 *a);
void reference_fp8_unpack(const struct kernels_fp8 *a);
void reference_tell(const struct kernels_told *a);
/* XXH3-64 without a seed. */
uint64_t reference_xxh3(const void *bytes, uint64_t n);

/* Runs the reference of a kind. */
void reference_run(enum kernels_kind kind, const union kernels_args *args);

#endif

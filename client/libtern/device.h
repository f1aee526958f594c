/* This process's mappings of memory on a GPU. pool.c calls it. See device.c. */
#ifndef CLIENT_DEVICE_H
#define CLIENT_DEVICE_H

#include "internal.h"
#include "kernels/driver.h"

struct device_map;

/* A whole region, which is one allocation, and its GPU. */
struct device_range {
    const char *uuid; /* borrowed */
    uint64_t region_bytes;
};

/* Imports fd (borrowed) and maps it. UNSUPPORTED: no driver. INVALID: another GPU. */
enum tern_err device_map_create(struct tern *t, int fd, const struct device_range *range,
                                struct device_map **ret);
void device_map_destroy(struct device_map *m, bool owner);
uint8_t *device_map_base(const struct device_map *m); /* an address of the device */
const char *device_map_uuid(const struct device_map *m);
int device_map_ordinal(const struct device_map *m); /* among the GPUs that this process sees */
CUdevice device_map_device(const struct device_map *m);
const struct driver *device_map_driver(const struct device_map *m); /* valid while `m` exists */

#endif

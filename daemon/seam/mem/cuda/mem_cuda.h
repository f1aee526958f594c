/* Memory of GPUs, over CUDA's driver, which is loaded here and not linked: one allocation for each
 * (tenant, region), made, zeroed and exported as a descriptor at start. Its bytes are read and
 * written by copies through pinned memory of the host (struct mem_far), are moved by the devices
 * themselves within a device and between two with peer access, and are hashed by kernels, or by the
 * CPU from a copy where a device has no kernels.
 *
 * mem_host.c creates and destroys this on the owner thread, with the mask of own_threads_mask,
 * since the driver may start threads in any call, and these must take none of our signals. Any
 * other thread may copy, and each waits for its own copy. Invariant: a lane's pinned memory is not
 * touched while the device may write or read it, and nothing is submitted to a device that failed
 * once (fault 21), so neither its memory nor its lanes are ever used again. After the start the
 * driver allocates only on the threads that copy, never on the owner's. */
#ifndef SEAM_MEM_CUDA_H
#define SEAM_MEM_CUDA_H

#include "base/tern_err.h"
#include "seam/mem/mem_touch.h"

struct cuda;

#define CUDA_DEVICES_MAX MEM_GPUS_MAX
#define CUDA_REGIONS_MAX 256u
#define CUDA_LANES       4u           /* of a device: copies at a time; others wait for a lane */
#define CUDA_PIECE_BYTES (256u << 10) /* a lane has two, to copy one while the other is used */
#define CUDA_WAIT_MS     10000u       /* default, for a piece; a device that takes longer is lost */

/* One allocation, owned by the struct cuda. `base` is an address of the device. */
struct cuda_region {
    uint32_t device;
    uint8_t *base;   /* NULL: not made */
    uint64_t bytes;  /* whole granules of the device */
    uint64_t handle; /* of the driver */
    uint32_t stage;  /* how much of it was made, for its end */
    int fd;          /* owned: the descriptor that processes import; -1 */
};

/* Returns the bytes of pinned memory for that many devices. */
uint64_t cuda_staging_bytes(uint32_t devices);

/* Loads the driver. `library`: DRIVER_LIBRARY, or a stand-in of tests; event_fd (borrowed) is
 * written when a device is lost; wait_ms: for a piece. UNSUPPORTED: there is no driver, or it is
 * too old. Here and below *ret_why says what to do. */
enum tern_err cuda_create(const char *library, int event_fd, uint32_t wait_ms, struct cuda **ret,
                          const char **ret_why);
void cuda_destroy(struct cuda *c); /* with all its regions; NULL is fine */

/* Opens the device if need be, and makes zeroed memory on it. *ret: borrowed. */
enum tern_err cuda_region_create(struct cuda *c, const char *uuid, uint64_t bytes,
                                 const struct cuda_region **ret, const char **ret_why);

/* As mem_region_export. */
enum tern_err cuda_region_export(struct cuda *c, const struct cuda_region *r, bool pcie,
                                 int *ret_fd, const char **ret_why);

/* Called when all regions are made. Later copies between devices use peer access, unless `off`. */
void cuda_peers_open(struct cuda *c, bool off);
/* Returns why copies between the two go through the host; valid as long as `c`. NULL: they do not.
 * Any thread. */
const char *cuda_no_peers(struct cuda *c, uint32_t device, uint32_t other);

const struct mem_far *cuda_far(const struct cuda *c);

/* As mem_device_view; texts are valid as long as the struct cuda. */
bool cuda_device_view(struct cuda *c, uint32_t device, struct mem_device_view *ret);
/* Totals over all devices, since the start: all but sums_by_engine. Any thread. */
void cuda_work(const struct cuda *c, struct mem_far_work *ret);

#endif

/* Preloaded in a lab guest. soft-RoCE registers no dma-buf, so this library maps the memfd that the
 * stand-in for CUDA's driver exports, and registers its pages under the requested address. It
 * refuses a descriptor, an offset or a length that a NIC's driver would refuse. With
 * RDMA_DMABUF_STALE set the pages are copies: the NIC sees their content at registration, and its
 * writes reach nobody. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
                                 int fd, int access)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    struct ibv_mr *mr;
    struct stat st;
    void *at;

    if (fstat(fd, &st) != 0)
        return NULL;
    if (offset % page || iova % page || length == 0 || offset > (uint64_t)st.st_size ||
        length > (uint64_t)st.st_size - offset || (access & (int)IBV_ACCESS_MW_BIND)) {
        errno = EINVAL;
        return NULL;
    }
    at = mmap(NULL, length, PROT_READ | PROT_WRITE,
              getenv("RDMA_DMABUF_STALE") ? MAP_PRIVATE : MAP_SHARED, fd, (off_t)offset);
    if (at == MAP_FAILED)
        return NULL;
    mr = (ibv_reg_mr_iova)(pd, at, length, iova, access);
    munmap(at, length); /* the registration keeps the pages */
    fprintf(stderr, "dmabuf: offset=%llu bytes=%zu of=%llu\n", (unsigned long long)offset, length,
            (unsigned long long)st.st_size);
    return mr;
}

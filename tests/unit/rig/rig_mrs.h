/* Registrations of memory with an emulated NIC; the test decides which of them succeed. Header
 * only. */
#ifndef TEST_RIG_MRS_H
#define TEST_RIG_MRS_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdlib.h>

#undef ibv_reg_mr

struct registration {
    struct ibv_pd *pd;
    void *addr;
    size_t bytes;
    int access;
    int fd; /* of a dma-buf; -1: registered by address */
    uint64_t offset;
};

/* Defined by the test, called on any registering thread. Returns 0, or the errno to fail with. */
static int registration_error(const struct registration *r);

static atomic_uint registered; /* present number */
static struct ibv_mr *_Atomic registration_newest;

static struct ibv_mr *registration_make(const struct registration *r)
{
    int error = registration_error(r);
    struct ibv_mr *mr = error ? NULL : calloc(1, sizeof *mr);

    if (!mr) {
        errno = error ? error : ENOMEM;
        return NULL;
    }
    *mr = (struct ibv_mr){.pd = r->pd, .addr = r->addr, .length = r->bytes};
    atomic_fetch_add(&registered, 1);
    atomic_store(&registration_newest, mr);
    return mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t bytes, int access)
{
    return registration_make(&(struct registration){pd, addr, bytes, access, -1, 0});
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova,
                                 int fd, int access)
{
    return registration_make(
        &(struct registration){pd, (void *)(uintptr_t)iova, bytes, access, fd, offset});
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    free(mr);
    atomic_fetch_sub(&registered, 1);
    return 0;
}

#endif

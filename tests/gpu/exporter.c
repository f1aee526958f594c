#include "gpu/exporter.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/driver.h"

union rights {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
};

static struct msghdr message(struct iovec *one, union rights *rights)
{
    return (struct msghdr){.msg_iov = one,
                           .msg_iovlen = 1,
                           .msg_control = rights->bytes,
                           .msg_controllen = sizeof rights->bytes};
}

static bool exported(const struct driver *d, int *ret)
{
    static uint8_t bytes[EXPORTER_BYTES];
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes =
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {.location = prop.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUcontext context;
    CUdevice device;
    CUdeviceptr at;

    memset(bytes, EXPORTER_FILL, sizeof bytes);
    return d->init(0) == CUDA_SUCCESS && d->device_get(&device, 0) == CUDA_SUCCESS &&
           d->context_retain(&context, device) == CUDA_SUCCESS &&
           d->context_set(context) == CUDA_SUCCESS &&
           d->mem_create(&handle, sizeof bytes, &prop, 0) == CUDA_SUCCESS &&
           d->address_reserve(&at, sizeof bytes, 0, 0, 0) == CUDA_SUCCESS &&
           d->mem_map(at, sizeof bytes, 0, handle, 0) == CUDA_SUCCESS &&
           d->mem_access(at, sizeof bytes, &access, 1) == CUDA_SUCCESS &&
           d->copy_to_device(at, bytes, sizeof bytes) == CUDA_SUCCESS &&
           d->mem_export(ret, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS;
}

static _Noreturn void child(int socket, const char *library)
{
    struct driver_why why;
    struct driver d;
    union rights rights = {.bytes = {0}};
    char asked;
    struct iovec one = {.iov_base = &asked, .iov_len = 1};
    struct msghdr m = message(&one, &rights);
    int fd;

    if (read(socket, &asked, 1) != 1 || driver_open(&d, library, &why) != DRIVER_OK ||
        !exported(&d, &fd))
        _exit(1);
    rights.head = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&rights.head), &fd, sizeof fd);
    if (sendmsg(socket, &m, 0) == 1)
        pause();
    _exit(1);
}

bool exporter_begin(struct exporter *ret, const char *library)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return false;
    *ret = (struct exporter){.pid = fork(), .socket = ends[0]};
    if (ret->pid == 0) {
        close(ends[0]);
        child(ends[1], library);
    }
    close(ends[1]);
    if (ret->pid < 0)
        close(ends[0]);
    return ret->pid > 0;
}

int exporter_end(struct exporter *e)
{
    union rights rights = {.bytes = {0}};
    char answer = 'x';
    struct iovec one = {.iov_base = &answer, .iov_len = 1};
    struct msghdr m = message(&one, &rights);
    int fd = -1;

    if (write(e->socket, &answer, 1) == 1 && recvmsg(e->socket, &m, MSG_CMSG_CLOEXEC) == 1 &&
        rights.head.cmsg_len == CMSG_LEN(sizeof fd))
        memcpy(&fd, CMSG_DATA(&rights.head), sizeof fd);
    kill(e->pid, SIGKILL);
    waitpid(e->pid, NULL, 0);
    close(e->socket);
    return fd;
}

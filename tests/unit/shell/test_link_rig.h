/* Replaces the socket of a link in tests: the linker uses these in programs that dial nobody. */
#ifndef TEST_LINK_RIG_H
#define TEST_LINK_RIG_H

#include "shell/daemon.h"

void __wrap_xfer_stats(const struct xfer *xfer, struct xfer_stats *ret);
bool __wrap_stream_put(struct stream *s, const uint8_t *bytes, size_t n, const int *fds,
                       uint32_t nfds);
void __wrap_stream_open(struct stream *s, struct stream_pool *pool, const struct stream_ops *ops,
                        int fd, uint32_t share, uint32_t body_max, uint32_t send_buffers_max);

void __wrap_xfer_stats(const struct xfer *xfer, struct xfer_stats *ret)
{
    (void)xfer;
    *ret = (struct xfer_stats){0};
}

bool __wrap_stream_put(struct stream *s, const uint8_t *bytes, size_t n, const int *fds,
                       uint32_t nfds)
{
    (void)s, (void)bytes, (void)n, (void)fds, (void)nfds;
    return true;
}

void __wrap_stream_open(struct stream *s, struct stream_pool *pool, const struct stream_ops *ops,
                        int fd, uint32_t share, uint32_t body_max, uint32_t send_buffers_max)
{
    (void)pool, (void)share, (void)body_max, (void)send_buffers_max;
    s->ops = ops;
    s->fd = fd;
}

#endif

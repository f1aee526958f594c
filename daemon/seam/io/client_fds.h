/* Descriptors that a client sends with its bytes (SCM_RIGHTS). The daemon wants none, and their
 * last close may take as long as the client likes (a TCP socket that lingers), so the owner thread
 * neither receives them nor closes a socket whose queue may contain some.
 *
 * Linux 6.16 refuses them at the sender (SO_PASSRIGHTS). Without that, on an older kernel or for a
 * connection that was queued at a listener before the listener had the option, the owner looks
 * first (io_recv_buffers) and reads only bytes without descriptors, and a closing thread
 * (closer.h) closes the socket. The socket itself shows at any time which of the two applies. */
#ifndef SEAM_CLIENT_FDS_H
#define SEAM_CLIENT_FDS_H

#include <stdbool.h>

/* Makes the kernel refuse descriptors sent to this Unix socket or, for a listener, to connections
 * made from now on. Returns false if the kernel cannot. Call it before anybody can send. */
bool client_fds_refuse(int fd);

/* Returns true if the socket's queue may contain descriptors; false if it is no Unix socket. */
bool client_fds_may_come(int fd);

#endif

/* Descriptors that a client sends beside its bytes (SCM_RIGHTS). Nobody here wants any, and their
 * last close may take as long as the client likes (a TCP socket that lingers), so the owner thread
 * neither takes them in nor closes a socket in whose queue they may lie.
 *
 * Linux 6.16 refuses them at the sender (SO_PASSRIGHTS). Where it cannot, with an older kernel or
 * for a connection that was queued at a listener before the listener had the option, the owner
 * looks first (io_recv_client_buffers) and reads only what brings no descriptors, and a closing
 * thread (closer.h) closes. The socket itself tells which of the two it is, at any time. */
#ifndef SEAM_CLIENT_FDS_H
#define SEAM_CLIENT_FDS_H

#include <stdbool.h>

/* Lets the kernel refuse descriptors that are sent to this Unix socket, or, of a listener, to those
 * that connect from now on. False: the kernel cannot. Call it before anybody can send. */
bool client_fds_refuse(int fd);

/* May descriptors lie in the queue of that socket? Never for one that is no Unix socket. */
bool client_fds_may_come(int fd);

#endif

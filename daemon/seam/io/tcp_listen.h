/* Listening TCP sockets: of the control port, of the data port, and of a check of the
 * configuration. Each call resolves a name and so may block: for use at the start only. */
#ifndef SEAM_TCP_LISTEN_H
#define SEAM_TCP_LISTEN_H

#include <stdint.h>
#include <sys/socket.h>

/* Listens on the first address of the host that can be bound; NULL or "": on all addresses, those
 * of IPv4 through a socket of IPv6. Port 0: the kernel chooses. Returns the socket, and the bound
 * port in *ret_port; or -1, and the system's error text in *ret_why, with errno 0 for a name that
 * does not resolve. */
int tcp_listen(const char *host, uint16_t port, int backlog, uint16_t *ret_port,
               const char **ret_why);
uint16_t tcp_port(const struct sockaddr_storage *addr);

#endif

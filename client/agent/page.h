/* The page at "/": page.html, which the build converts to a source of this program. */
#ifndef AGENT_PAGE_H
#define AGENT_PAGE_H

#include <stddef.h>

const void *agent_page(size_t *ret_bytes);

#endif

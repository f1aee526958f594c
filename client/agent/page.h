/* The page at "/": page.html, made a source of this program by the build. */
#ifndef AGENT_PAGE_H
#define AGENT_PAGE_H

#include <stddef.h>

const void *agent_page(size_t *ret_bytes);

#endif

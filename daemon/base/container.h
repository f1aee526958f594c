/* From a member to the struct that it lies in. */
#ifndef BASE_CONTAINER_H
#define BASE_CONTAINER_H

#include <stddef.h>

#define container_of(at, type, member) ((type *)(void *)((char *)(at)-offsetof(type, member)))

#endif

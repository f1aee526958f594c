/* Converts the address of a member to that of the struct that contains it. */
#ifndef BASE_CONTAINER_H
#define BASE_CONTAINER_H

#include <stddef.h>

#define container_of(at, type, member) ((type *)(void *)((char *)(at)-offsetof(type, member)))

#endif

/* The door (seam/io/door.h), which admits every caller at once: the receiver of the connection
 * checks the caller's first bytes, as it does behind the daemon's door. */
#include "seam/io/door.h"

#include "redirect.h"

struct door {
    struct door_config config;
};

uint64_t door_bytes(uint32_t places)
{
    (void)places;
    return sizeof(struct door);
}

enum tern_err door_create(const struct door_config *config, struct door **ret)
{
    *ret = calloc(1, sizeof **ret);
    if (*ret)
        (*ret)->config = *config;
    return *ret ? TERN_OK : TERN_INTERNAL;
}

void door_destroy(struct door *door)
{
    free(door);
}

void door_arrived(struct door *door, int fd, uint64_t now_ns)
{
    (void)now_ns;
    if (door->config.enter(door->config.ctx, fd) != DOOR_ENTER)
        close(fd);
}

void door_again(struct door *door)
{
    (void)door;
}

void door_tick(struct door *door, uint64_t now_ns)
{
    (void)door, (void)now_ns;
}

void door_stats(const struct door *door, struct door_stats *ret)
{
    (void)door;
    *ret = (struct door_stats){0};
}

/* tern-replay --reshard: pools of one kind of KV or STATE, divided over P ranks of one daemon and
 * D ranks of another one, exchange pages; each byte that arrives is compared with what it is in the
 * whole model (rig_reshard.h), which nothing of the daemons has computed. */
#ifndef REPLAY_RESHARD_H
#define REPLAY_RESHARD_H

/* The arguments behind --reshard. Returns what the program ends with. */
int reshard_main(int argc, char **argv);

#endif

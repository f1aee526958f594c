/* tern-replay --reshard: pools of one kind of KV or STATE, divided over P ranks of one daemon and D
 * ranks of another one, exchange pages. Each byte that arrives is compared with its value in the
 * whole model (rig_reshard.h), which no code of the daemons has computed. */
#ifndef REPLAY_RESHARD_H
#define REPLAY_RESHARD_H

/* Plays the arguments after --reshard. Returns the program's exit status. */
int reshard_main(int argc, char **argv);

#endif

/* tern-replay --follow: the part of a transfer that decode waits for when it follows the prefill
 * engine by an early ticket (Y4), beside a hand-over whose transfer begins after the whole prompt
 * is computed. Both wait from the source's last done step to the answer of the fetch. Prompts of
 * 32,768 tokens, chunks of 2,048, 256 KiB a page of 64 tokens. A chunk computes `pace` times as
 * long as its share of the whole transfer takes, which is measured first. */
#ifndef REPLAY_FOLLOW_H
#define REPLAY_FOLLOW_H

/* Plays the arguments after --follow. Returns the program's exit status. */
int follow_main(int argc, char **argv);

#endif

/* The states of what reads the configuration anew (base/states.h says how to read the table). */
#ifndef SHELL_CONFIG_READER_STATES_H
#define SHELL_CONFIG_READER_STATES_H

#include "base/states.h"

#define CONFIG_READER_STATE_TABLE(X)                                                               \
    X(CONFIG_READER, IDLE, TO(CONFIG_READER, READING) | TO(CONFIG_READER, ENDING),                 \
      "nobody has asked")                                                                          \
    X(CONFIG_READER, READING, TO(CONFIG_READER, READ) | TO(CONFIG_READER, ORPHANED),               \
      "its thread reads the file")                                                                 \
    X(CONFIG_READER, READ, TO(CONFIG_READER, IDLE) | TO(CONFIG_READER, ENDING),                    \
      "what was read has not been taken yet")                                                      \
    X(CONFIG_READER, ENDING, TO(CONFIG_READER, ENDED), "its owner waits for the thread to leave")  \
    X(CONFIG_READER, ENDED, 0, "the thread has left; its owner frees it")                          \
    X(CONFIG_READER, ORPHANED, 0,                                                                  \
      "its owner has left; the thread frees it when the file has been read")

STATE_MACHINE(config_reader, CONFIG_READER, CONFIG_READER_STATE_TABLE)

#endif

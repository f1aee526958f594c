/* What the stand-in takes for a module of kernels beside a real one: a text, which no GPU takes for
 * anything. Tests whose build has no nvcc embed it in the place of the real module. */
#ifndef STANDIN_MODULE_H
#define STANDIN_MODULE_H

#define STANDIN_MODULE "tern: kernels for the stand-in of libcuda.so.1, which no GPU can run"

#endif

/* The stand-in's module of kernels, accepted beside a real one: a text that no GPU accepts. Tests
 * whose build has no nvcc embed it in place of the real module. */
#ifndef STANDIN_MODULE_H
#define STANDIN_MODULE_H

#define STANDIN_MODULE "tern: kernels for the stand-in of libcuda.so.1, which no GPU can run"

#endif

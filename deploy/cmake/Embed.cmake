# cmake -DINPUT=FILE -DOUTPUT=FILE.c -P Embed.cmake: kernels_fatbin of kernels/kernels.h, with the bytes of INPUT.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUTPUT} "/* Made by the build from the device kernels. */
#include \"kernels/kernels.h\"

static const _Alignas(64) unsigned char module[] = {
${bytes}};

const void *kernels_fatbin(size_t *ret_bytes)
{
    *ret_bytes = sizeof module;
    return module;
}
")

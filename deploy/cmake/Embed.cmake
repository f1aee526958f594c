# cmake -DINPUT=FILE -DOUTPUT=FILE.c -DHEADER=FILE.h -DFUNCTION=NAME -P Embed.cmake: writes the function that HEADER
# declares, with the bytes of INPUT.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUTPUT} "/* Made by the build. */
#include \"${HEADER}\"

static const _Alignas(64) unsigned char embedded[] = {
${bytes}};

const void *${FUNCTION}(size_t *ret_bytes)
{
    *ret_bytes = sizeof embedded;
    return embedded;
}
")

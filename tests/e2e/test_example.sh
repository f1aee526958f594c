#!/usr/bin/env bash
# The example engine in a user's way: installed headers and library, found by pkg-config, one call
# of the compiler; then run against a real daemon.
source "$(dirname "$0")/with_ternd.sh"
USER_FLAGS=() # a sanitized library needs the same sanitizer in its users
case $SANITIZE in
address) USER_FLAGS+=(-fsanitize=address,undefined) ;;
thread) USER_FLAGS+=(-fsanitize=thread) ;;
esac

cmake --install "$TERN_BUILD" --prefix "$DIR/usr" >"$DIR/install.log" 2>&1 || {
    cat "$DIR/install.log"
    fail "cmake --install"
}
PC=$(find "$DIR/usr" -name tern.pc)
[[ -n $PC ]] || fail "no tern.pc was installed"
export PKG_CONFIG_PATH=${PC%/*}
LIBDIR=$(pkg-config --variable=libdir tern)

# The installed header suffices, for C and for C++, and the library exports nothing but its interface.
echo '#include <tern.h>' >"$DIR/only.c"
$CC -std=c99 -pedantic -Wall -Werror $(pkg-config --cflags tern) -c "$DIR/only.c" -o "$DIR/only.o" || fail "tern.h in C99"
if command -v c++ >/dev/null; then
    c++ -Wall -Werror $(pkg-config --cflags tern) -x c++ -c "$DIR/only.c" -o "$DIR/only.o" || fail "tern.h in C++"
else
    echo "tern.h in C++: not looked at, there is no c++ (package g++)"
fi
ODD=$(nm -D --defined-only "$LIBDIR/libtern.so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' |
    grep -v '^tern_[a-z_]*$' || true)
[[ -z $ODD ]] || fail "libtern.so exports: $ODD"
SYMBOLS=$(nm -D --defined-only "$LIBDIR/libtern.so")
for name in $(grep -oh '\btern_[a-z_]*(' "$DIR"/usr/include/tern*.h | tr -d '(' | sort -u); do
    [[ $SYMBOLS == *" T $name@@TERN_"* ]] || fail "$name is declared and not exported"
done

$CC "${USER_FLAGS[@]}" -Wall -Wextra -Werror $(pkg-config --cflags tern) "$TERN_SOURCE/client/example/tiny_engine.c" \
    $(pkg-config --libs tern) -o "$DIR/tiny_engine" || fail "the example does not compile"
[[ $(wc -l <"$TERN_SOURCE/client/example/tiny_engine.c") -lt 250 ]] || fail "the example is no longer small"

ternd_start "" 16M 1
export LD_LIBRARY_PATH=$LIBDIR
OUT=$("$DIR/tiny_engine" "$SOCKET") || fail "the example engine: $OUT"
echo "$OUT"
grep -q "second: 940 tokens, peek says 640, match found 640 in 10 pages" <<<"$OUT" || fail "the prefix was not shared"
[[ $(grep -c " 0 bytes of KV are wrong" <<<"$OUT") == 2 ]] || fail "wrong bytes"
[[ $(grep -c "released 1 pages, then recovered 896 tokens in 14 pages" <<<"$OUT") == 2 ]] || fail "the session was not retracted and recovered"

# Linked statically, it works without the shared library.
$CC "${USER_FLAGS[@]}" $(pkg-config --cflags tern) "$TERN_SOURCE/client/example/tiny_engine.c" "$LIBDIR/libtern.a" \
    $(pkg-config --libs libprotobuf-c) -o "$DIR/tiny_static" || fail "the example does not link statically"
env -u LD_LIBRARY_PATH "$DIR/tiny_static" "$SOCKET" >/dev/null || fail "the static example"

# Without a daemon it prints an error.
if ERR=$("$DIR/tiny_engine" "$DIR/nobody.sock" 2>&1); then
    fail "no daemon, and it was content"
fi
grep -q "Is ternd running" <<<"$ERR" || fail "no advice: $ERR"
echo "example: ok"

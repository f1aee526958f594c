# Compiler flags and libraries, once for everything.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_C_FLAGS_RELEASE "-O2 -g")
set(TERN_GEN ${PROJECT_BINARY_DIR}/gen)

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(protobuf_c REQUIRED IMPORTED_TARGET libprotobuf-c)
pkg_check_modules(uring REQUIRED IMPORTED_TARGET liburing>=2.3)
pkg_check_modules(cyaml REQUIRED IMPORTED_TARGET libcyaml)
pkg_check_modules(jansson REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(crypto REQUIRED IMPORTED_TARGET libcrypto)
find_program(PROTOC_C protoc-c REQUIRED)

# Every target of ours has these; generated code has only the include paths and the instrumentation.
add_library(tern_includes INTERFACE)
target_include_directories(tern_includes INTERFACE
    ${PROJECT_SOURCE_DIR}/daemon ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/daemon/base
    ${PROJECT_SOURCE_DIR}/client/include ${TERN_GEN})
# Defined as empty, so that a file which says it for itself says the same thing.
target_compile_definitions(tern_includes INTERFACE _GNU_SOURCE=)

add_library(tern_flags INTERFACE)
target_link_libraries(tern_flags INTERFACE tern_includes)
target_compile_options(tern_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Werror)

add_library(tern_fast INTERFACE)
target_compile_options(tern_fast INTERFACE $<$<NOT:$<CONFIG:Debug>>:-O3>)

set(instrument)
if(TERN_SANITIZE STREQUAL "address")
    list(APPEND instrument -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
elseif(TERN_SANITIZE STREQUAL "thread")
    list(APPEND instrument -fsanitize=thread -fno-omit-frame-pointer)
endif()
if(TERN_COVERAGE)
    list(APPEND instrument --coverage)
endif()
if(TERN_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)
    if(NOT TERN_SANITIZE)
        list(APPEND instrument -fsanitize=address,undefined -fno-sanitize-recover=all)
    endif()
endif()
add_compile_options(${instrument})
add_link_options(${instrument})

# Helpers for the CMakeLists.txt of each folder.

# Files whose names end in an instruction set are compiled for it.
function(tern_wide_vectors)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        foreach(file IN LISTS ARGN)
            if(file MATCHES "_avx2\\.c$")
                set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "-O3;-mavx2")
            elseif(file MATCHES "_avx512\\.c$")
                set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "-O3;-mavx512f;-mavx512bw;-mavx512vl")
            endif()
        endforeach()
    endif()
endfunction()

# Lists the sources of one folder, re-checked at each build; with a third argument, DEEP, also those of the folders below.
function(tern_sources ret dir)
    if("DEEP" IN_LIST ARGN)
        file(GLOB_RECURSE found CONFIGURE_DEPENDS ${dir}/*.c)
    else()
        file(GLOB found CONFIGURE_DEPENDS ${dir}/*.c)
    endif()
    tern_wide_vectors(${found})
    set(${ret} ${found} PARENT_SCOPE)
endfunction()

# Adds a library of these sources, or nothing if there are none. It is static, except with BUILD_SHARED_LIBS, which only
# tests/mutate sets: then a changed source costs one object and one library, and no test is linked again.
function(tern_library name)
    cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
    if(arg_SOURCES)
        add_library(${name} ${arg_SOURCES})
        target_link_libraries(${name} PRIVATE tern_flags)
        tern_link(${name} ${arg_LINK})
    endif()
endfunction()

# Adds a program in bin/, or nothing if there are no sources.
function(tern_program name)
    cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
    if(arg_SOURCES)
        add_executable(${name} ${arg_SOURCES})
        target_link_libraries(${name} PRIVATE tern_flags)
        tern_link(${name} ${arg_LINK})
    endif()
endfunction()

# One of hundreds of small programs: to optimise it takes longer than it saves, and gold links it in half the time.
include(CheckLinkerFlag)
check_linker_flag(C -fuse-ld=gold TERN_LD_GOLD)
function(tern_test_program name)
    tern_program(${name} ${ARGN})
    # gcc follows values less far at -O0, and then warns of what cannot happen.
    target_compile_options(${name} PRIVATE -O0 "$<$<C_COMPILER_ID:GNU>:-Wno-maybe-uninitialized;-Wno-format-truncation>")
    if(TERN_LD_GOLD)
        target_link_options(${name} PRIVATE -fuse-ld=gold)
    endif()
endfunction()

# Links those of our libraries that exist in this tree, and every library that is not ours.
function(tern_link name)
    foreach(lib IN LISTS ARGN)
        if(NOT lib MATCHES "^tern_" OR TARGET ${lib})
            target_link_libraries(${name} PUBLIC ${lib})
        endif()
    endforeach()
endfunction()

# Excludes a target from a fuzzer's coverage: the coverage of a test's own code would count as the daemon's.
function(tern_not_fuzzed)
    foreach(name IN LISTS ARGN)
        if(TERN_FUZZ AND TARGET ${name})
            target_compile_options(${name} PRIVATE -fno-sanitize=fuzzer-no-link)
        endif()
    endforeach()
endfunction()

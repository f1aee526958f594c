# Helpers for the CMakeLists.txt of each folder.

# Files that are named for an instruction set are compiled for it.
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

# Sources of one folder, re-checked at each build; with a third argument, DEEP, also those of the folders below it.
function(tern_sources ret dir)
    if("DEEP" IN_LIST ARGN)
        file(GLOB_RECURSE found CONFIGURE_DEPENDS ${dir}/*.c)
    else()
        file(GLOB found CONFIGURE_DEPENDS ${dir}/*.c)
    endif()
    tern_wide_vectors(${found})
    set(${ret} ${found} PARENT_SCOPE)
endfunction()

# A library of these sources; nothing where there are none. It is static, but for BUILD_SHARED_LIBS, which only
# tests/mutate sets: there a changed source costs one object and one library, and no test is linked again.
function(tern_library name)
    cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
    if(arg_SOURCES)
        add_library(${name} ${arg_SOURCES})
        target_link_libraries(${name} PRIVATE tern_flags)
        tern_link(${name} ${arg_LINK})
    endif()
endfunction()

# A program in bin/; nothing where there are no sources.
function(tern_program name)
    cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
    if(arg_SOURCES)
        add_executable(${name} ${arg_SOURCES})
        target_link_libraries(${name} PRIVATE tern_flags)
        tern_link(${name} ${arg_LINK})
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

# Not what a fuzzer looks into: the coverage of a test's own code would be taken for that of the daemon.
function(tern_not_fuzzed)
    foreach(name IN LISTS ARGN)
        if(TERN_FUZZ AND TARGET ${name})
            target_compile_options(${name} PRIVATE -fno-sanitize=fuzzer-no-link)
        endif()
    endforeach()
endfunction()

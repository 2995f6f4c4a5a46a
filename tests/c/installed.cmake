# SPDX-License-Identifier: MIT
# What a C program's author does: installs the library, compiles the example elsewhere with what was installed and the
# flags that its pkg-config file tells, and runs it. The header must be plain C99, and C++ where there is a compiler.
# Variables: BUILD (its folder), CC, FLAGS, SANITIZE (may be empty), EXAMPLE.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}: ${status}")
  endif()
endfunction()

set(place ${BUILD}/installed)
file(REMOVE_RECURSE ${place})
# The pkg-config file tells places below the prefix of the configuration; DESTDIR puts those below `place`.
set(ENV{DESTDIR} ${place})
run(${CMAKE_COMMAND} --install ${BUILD})
file(GLOB_RECURSE found ${place}/pccl.pc)
if(NOT found)
  message(FATAL_ERROR "no pkg-config file")
endif()
file(STRINGS ${found} flags REGEX "^(Cflags|Libs): ")
string(REGEX REPLACE "(Cflags|Libs): " "" flags "${flags}")
string(REGEX REPLACE "(-[IL])" "\\1${place}" flags "${flags}")
list(TRANSFORM flags STRIP)
string(REPLACE " " ";" flags "${flags}")
string(REPLACE " " ";" FLAGS "${FLAGS}")
if(SANITIZE)
  list(APPEND FLAGS -fsanitize=${SANITIZE})
endif()
run(${CC} ${FLAGS} ${EXAMPLE} ${flags} -o ${place}/allreduce)
run(${place}/allreduce)

file(WRITE ${place}/header.c "#include \"pccl.h\"\nint main(void) { return pccl_status_string(PCCL_OK) == 0; }\n")
set(strict -pedantic -Wall -Wextra -Werror -c ${place}/header.c -o ${place}/header.o)
run(${CC} -std=c99 ${flags} ${strict})
find_program(CXX NAMES c++ g++ clang++)
if(CXX)
  run(${CXX} -x c++ -std=c++98 ${flags} ${strict})
endif()

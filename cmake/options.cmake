set(CMAKE_C_STANDARD 17)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()

option(BROOD_TESTS "build the tests" ON)
option(BROOD_E2E "build the end-to-end tests too" ON)
option(BROOD_BENCH "build the bench programs" ON)
option(BROOD_FAULT_POINTS "compile fault points in (test builds only)" OFF)
set(BROOD_SANITIZE "" CACHE STRING "value for -fsanitize=, e.g. address,undefined")
option(BROOD_FUZZ "build libFuzzer targets (clang only)" OFF)

# Assertions stay on in release builds: no NDEBUG.
set(CMAKE_C_FLAGS_RELEASE "-O2 -g")
set(BROOD_DEBUG_INFO 3 CACHE STRING "level of -g in Debug builds; 1 is enough for a sanitizer's reports and links faster")
set(CMAKE_C_FLAGS_DEBUG "-O0 -g${BROOD_DEBUG_INFO}")

add_compile_options(-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
                    -Wpointer-arith -Wformat=2 $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation> -Wundef -Werror=implicit-function-declaration
                    -Werror=incompatible-pointer-types -Werror=int-conversion -Werror=return-type
                    -fno-common -fstack-protector-strong)
add_compile_definitions(_GNU_SOURCE BROOD_VERSION="${PROJECT_VERSION}")
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT BROOD_SANITIZE)
    add_compile_options(-D_FORTIFY_SOURCE=2)
endif()
if(BROOD_SANITIZE)
    # -O1: a report's lines stay right, and the tests of maxima take a third of the time
    add_compile_options(-O1 -fsanitize=${BROOD_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${BROOD_SANITIZE})
endif()
if(BROOD_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(BROOD_FAULT_POINTS)
    add_compile_definitions(BROOD_FAULT_POINTS=1)
endif()

# slipring_layer(NAME SOURCES a.cpp ... [TESTS a_test.cpp ...] [BENCHES a_bench.cpp ...] [DEPS target ...] [TEST_DEPS ...])
#
# One folder of src/ is one layer: a static library slipring_NAME, its unit tests beside the source in one program
# slipring_NAME_tests, and its benchmarks in slipring_NAME_bench. Test data is found through SLIPRING_SOURCE_DIR.
add_library(slipring_options INTERFACE)
target_include_directories(slipring_options INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
target_compile_options(slipring_options INTERFACE -Wall -Wextra -Werror -Wpedantic -Wshadow -Wnon-virtual-dtor -Wconversion
  -Wno-sign-conversion
  # g++ 12 sees overlapping copies in plain string concatenation (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  # The arithmetic is written out, fma included; the compiler may not contract on its own, or the bits would depend on inlining.
  -ffp-contract=off)
if(SLIPRING_SANITIZE)
  target_compile_options(slipring_options INTERFACE -fsanitize=${SLIPRING_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
    # Little optimisation: instrumented SIMD kernels take minutes to compile otherwise. And GCC 12 sees ghosts in <regex>.
    -O1 -g1 $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(slipring_options INTERFACE -fsanitize=${SLIPRING_SANITIZE})
endif()
if(SLIPRING_FUZZERS)
  target_compile_options(slipring_options INTERFACE -fsanitize=fuzzer-no-link)  # every line counts as coverage
endif()

function(slipring_layer name)
  cmake_parse_arguments(arg "" "" "SOURCES;TESTS;BENCHES;DEPS;TEST_DEPS" ${ARGN})
  add_library(slipring_${name} STATIC ${arg_SOURCES})
  add_library(slipring::${name} ALIAS slipring_${name})
  target_link_libraries(slipring_${name} PUBLIC slipring_options Threads::Threads ${arg_DEPS})
  if(SLIPRING_TESTS AND arg_TESTS)
    slipring_test(slipring_${name}_tests SOURCES ${arg_TESTS} DEPS slipring_${name} ${arg_TEST_DEPS})
  endif()
  if(SLIPRING_BENCHMARKS AND arg_BENCHES)
    add_executable(slipring_${name}_bench ${arg_BENCHES})
    target_link_libraries(slipring_${name}_bench PRIVATE slipring_${name} benchmark::benchmark benchmark::benchmark_main)
  endif()
endfunction()

# slipring_test(NAME SOURCES ... DEPS ...): one GoogleTest program, every test its own CTest entry.
function(slipring_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gtest GTest::gtest_main)
  # Their templates take twice as long to compile at -O3, and what they test is compiled with it all the same.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  target_compile_definitions(${name} PRIVATE SLIPRING_SOURCE_DIR="${PROJECT_SOURCE_DIR}" SLIPRING_BINARY_DIR="${PROJECT_BINARY_DIR}")
  # What hangs shall end; what is slow without SIMD or under a sanitizer, on a busy machine, shall not.
  set(timeout 1200)
  if(SLIPRING_SANITIZE)
    set(timeout 3000)
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT ${timeout})
endfunction()

# kvserve_module(<name> [SOURCES ...] [TESTS ...] [DEPS ...] [TEST_DEPS ...])
# One static library per folder of src/, its GoogleTest sources (one executable, ctest label "unit").
function(kvserve_module name)
  cmake_parse_arguments(M "" "" "SOURCES;TESTS;DEPS;TEST_DEPS" ${ARGN})
  add_library(kvserve_${name} STATIC ${M_SOURCES})
  target_include_directories(kvserve_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include
                                                    ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(kvserve_${name} PUBLIC kvserve_flags ${M_DEPS})
  if(KVSERVE_BUILD_TESTS AND M_TESTS)
    add_executable(${name}_test ${M_TESTS})
    target_link_libraries(${name}_test PRIVATE kvserve_${name} ${M_TEST_DEPS} GTest::gmock
                                               GTest::gtest_main)
    gtest_discover_tests(${name}_test PROPERTIES LABELS unit TIMEOUT 120 DISCOVERY_TIMEOUT 60)
  endif()
endfunction()

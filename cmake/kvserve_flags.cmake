# Warnings and sanitizers for all of our code, as one interface target.
add_library(kvserve_flags INTERFACE)
target_compile_options(kvserve_flags INTERFACE -Wall -Wextra -Werror=unused-result -Wshadow
                                               -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees an overlap inside `"text" + std::string`, where there is none (its bug 105651).
  target_compile_options(kvserve_flags INTERFACE -Wno-restrict)
endif()
target_compile_definitions(kvserve_flags INTERFACE KVSERVE_VERSION="${PROJECT_VERSION}")
if(KVSERVE_SANITIZE)
  target_compile_options(kvserve_flags INTERFACE -fsanitize=${KVSERVE_SANITIZE}
                                                 -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(kvserve_flags INTERFACE -fsanitize=${KVSERVE_SANITIZE})
endif()
if(KVSERVE_SCALAR_ONLY)
  target_compile_definitions(kvserve_flags INTERFACE HWY_COMPILE_ONLY_SCALAR)
  target_compile_options(kvserve_flags INTERFACE -fno-tree-vectorize)
endif()

# Libraries by package; ./dev installs them on Debian 12.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(tl-expected REQUIRED)
find_package(prometheus-cpp REQUIRED CONFIG)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(httplib REQUIRED IMPORTED_TARGET cpp-httplib)
target_link_libraries(kvserve_flags INTERFACE tl::expected)
if(KVSERVE_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
  pkg_check_modules(lz4 REQUIRED IMPORTED_TARGET liblz4)  # a row of the kernel benchmark
endif()
if(KVSERVE_WITH_LLAMA)
  # llama.cpp as the Python package llama-cpp-python installs it; CMAKE_PREFIX_PATH names its
  # site-packages (./dev sets it).
  find_package(llama REQUIRED)
endif()

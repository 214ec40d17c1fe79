# The install: one shared library of all layers, the public headers, the program, the embedded model and a CMake package.
#
#   find_package(slipring REQUIRED)
#   target_link_libraries(app PRIVATE slipring::slipring)
#
# The layers stay static libraries inside the build; the shared library takes them whole and hides what they need, so that
# users of the package need none of slipring's own dependencies to be found by CMake.
include(CMakePackageConfigHelpers)

set(slipring_data_dir ${CMAKE_INSTALL_DATADIR}/slipring)

add_library(slipring_shared SHARED ${PROJECT_SOURCE_DIR}/src/version.cpp)
set_target_properties(slipring_shared PROPERTIES OUTPUT_NAME slipring EXPORT_NAME slipring
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
target_include_directories(slipring_shared PUBLIC $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(slipring_shared PUBLIC cxx_std_20)
target_link_libraries(slipring_shared PRIVATE "$<LINK_LIBRARY:WHOLE_ARCHIVE,${SLIPRING_LIBRARY_LAYERS}>")
add_library(slipring::slipring ALIAS slipring_shared)

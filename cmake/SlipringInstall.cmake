# The install: one shared library of all layers, the public headers, the program, the embedded model and a CMake package.
#
#   find_package(slipring REQUIRED)
#   target_link_libraries(app PRIVATE slipring::slipring)
#
# Inside the build the layers stay static libraries. The shared library is made of their objects and links privately what
# they need, so that users of the package need none of slipring's own dependencies to be found by CMake.
include(CMakePackageConfigHelpers)

# slipring_install(LAYER...): the layers that the library is made of.
function(slipring_install)
  set(layers)
  set(objects)
  foreach(layer ${ARGN})
    if(TARGET slipring_${layer})
      list(APPEND layers slipring_${layer})
      list(APPEND objects $<TARGET_OBJECTS:slipring_${layer}>)
    endif()
  endforeach()
  add_library(slipring_library SHARED ${objects})
  add_library(slipring::slipring ALIAS slipring_library)
  set_target_properties(slipring_library PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME slipring EXPORT_NAME slipring
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_compile_features(slipring_library PUBLIC cxx_std_20)
  target_include_directories(slipring_library PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(slipring_library PRIVATE ${layers}) # for what the layers need; their own objects are in already

  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/slipring)
  install(TARGETS slipring_library EXPORT slipring_targets)
  install(EXPORT slipring_targets NAMESPACE slipring:: FILE slipring-config.cmake DESTINATION ${package_dir})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/slipring-config-version.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/slipring-config-version.cmake DESTINATION ${package_dir})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/slipring DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/models DESTINATION ${CMAKE_INSTALL_DATADIR}/slipring)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
endfunction()

// The files of web/, embedded when the program is built.
#pragma once

#include <string_view>
#include <vector>

namespace slipring::server {

struct PageFile {
  std::string_view path;  ///< as the browser asks for it: "/", "/app.js"
  std::string_view content_type;
  std::string_view content;
};

const std::vector<PageFile>& page_files();

}  // namespace slipring::server

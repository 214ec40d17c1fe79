# cmake -DWEB=FOLDER -DOUTPUT=FILE -P embed_page.cmake: the page's files as C++ string literals.
set(code "#include \"server/page.h\"\n\nnamespace slipring::server {\n\nconst std::vector<PageFile>& page_files() {\n  static const std::vector<PageFile> files = {\n")
foreach(entry "index.html|/|text/html; charset=utf-8" "style.css|/style.css|text/css; charset=utf-8"
              "app.js|/app.js|text/javascript; charset=utf-8" "rings.js|/rings.js|text/javascript; charset=utf-8")
  string(REPLACE "|" ";" parts "${entry}")
  # A content type holds a semicolon itself: everything behind the second bar is one.
  list(POP_FRONT parts name path)
  list(JOIN parts ";" type)
  file(READ ${WEB}/${name} content)
  string(APPEND code "      {\"${path}\", \"${type}\",\n       R\"~~(${content})~~\"},\n")
endforeach()
string(APPEND code "  };\n  return files;\n}\n\n}  // namespace slipring::server\n")
file(WRITE ${OUTPUT} "${code}")

// What the command says beside its answer: on stderr, and never a reason to fail.
#pragma once

#include <fmt/format.h>
#include <iterator>
#include <string_view>

namespace slipring::cli {

/// Writes to stderr, in one piece where the system lets it. What cannot be written is dropped. Threads: any.
void say_text(std::string_view text) noexcept;

/// As fmt::print(stderr, ...), and as say_text().
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) noexcept {
  try {
    fmt::memory_buffer text;  // short lines need no heap: this also says that memory has run out
    fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
    say_text({text.data(), text.size()});
  } catch (...) {
    say_text("slipring: a message was lost: out of memory\n");
  }
}

/// Gives closed standard streams a descriptor that fails as a closed one does. Without it the next file that is opened,
/// a model's or an output, would become stderr. Before anything is opened.
void hold_standard_streams() noexcept;

}  // namespace slipring::cli

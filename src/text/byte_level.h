// The GPT-2 spelling of bytes in vocabularies: every byte has a printable character ("Ġ" is the space).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace slipring::byte_level {

/// The character that spells `byte`, in UTF-8. Printable Latin-1 bytes stand for themselves; the others follow from
/// U+0100 on, in order of the byte. Source: GPT-2, encoder.py, bytes_to_unicode().
const std::string& spelling(uint8_t byte);

/// The bytes that a token of such a vocabulary stands for; nullopt if it holds a character that spells no byte.
std::optional<std::string> bytes_of(std::string_view token);

}  // namespace slipring::byte_level

// The parts of tokenizer.json that say how text is treated around the vocabulary: normalizer, pre_tokenizer, decoder.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "text/vocabulary.h"

namespace slipring {

// Each takes the file's field (null where it is absent) and fills its part of the vocabulary.
// @throws Error{unsupported} for a type that slipring does not have, Error{bad_file} for malformed ones

void read_hf_normalizer(const nlohmann::json& field, Vocabulary& vocabulary);
void read_hf_pre_tokenizer(const nlohmann::json& field, Vocabulary& vocabulary);
/// @pre read_hf_pre_tokenizer() has settled the spelling
void read_hf_decoder(const nlohmann::json& field, Vocabulary& vocabulary);

/// object[name], which must be there.
const nlohmann::json& object_field(const nlohmann::json& object, const char* name, const std::string& where);
/// object[name] as a string, or `otherwise` where it is absent or null.
std::string text_field(const nlohmann::json& object, const char* name, const std::string& where,
                       const std::string& otherwise);
/// object[name] as a truth value, or `otherwise` where it is absent or null.
bool flag_field(const nlohmann::json& object, const char* name, const std::string& where, bool otherwise);
/// A value for an error message: short, and never invalid UTF-8.
std::string printable(const nlohmann::json& value);

}  // namespace slipring

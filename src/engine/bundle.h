// Names that the writer and the reader of a bundle share.
#pragma once

namespace slipring {

inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kTokenizerGguf = "tokenizer.gguf";
inline constexpr const char* kBundleFormat = "slipring-bundle";
inline constexpr int kBundleVersion = 1;

}  // namespace slipring

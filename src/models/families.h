// The families that slipring runs: one factory each, in the file of that name.
#pragma once

#include <memory>

#include "models/decoder.h"

namespace slipring {

using DecoderFactory = std::shared_ptr<const Decoder> (*)(const ModelFiles& files, ThreadPool& pool);

std::shared_ptr<const Decoder> load_gemma3(const ModelFiles& files, ThreadPool& pool);
std::shared_ptr<const Decoder> load_llama(const ModelFiles& files, ThreadPool& pool);
std::shared_ptr<const Decoder> load_muse_glimmer(const ModelFiles& files, ThreadPool& pool);

}  // namespace slipring

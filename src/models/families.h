// The families that slipring runs: one factory each, in the file of that name.
#pragma once

#include <memory>

#include "models/decoder.h"

namespace slipring {

/// One architecture: its facts, which need no weights, and the whole model.
struct Family {
  ModelSpec (*read_spec)(const ModelFiles& files);
  std::shared_ptr<const Decoder> (*load)(const ModelFiles& files, ThreadPool& pool);
};

extern const Family kCohere2;
extern const Family kGemma2;
extern const Family kGemma3;
extern const Family kGptOss;
extern const Family kLlama;
extern const Family kMuseGlimmer;
extern const Family kOlmo3;
extern const Family kPhi3;

}  // namespace slipring

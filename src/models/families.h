// The families that slipring runs: one factory each, in the file of that name.
#pragma once

#include <memory>

#include "models/decoder.h"

namespace slipring {

/// One architecture: its facts, which need no weights, and the whole model. `context` is as in load_decoder().
struct Family {
  ModelSpec (*read_spec)(const ModelFiles& files, int64_t context);
  std::shared_ptr<const Decoder> (*load)(const ModelFiles& files, ThreadPool& pool, int64_t context);
};

/// The family of a class with a constructor (files, pool) and of its spec; neither depends on the context.
template <class Model, ModelSpec (*read_spec)(const ModelFiles&)>
constexpr Family make_family() {
  return {.read_spec = [](const ModelFiles& files, int64_t) { return read_spec(files); },
          .load = [](const ModelFiles& files, ThreadPool& pool, int64_t) -> std::shared_ptr<const Decoder> {
            return std::make_shared<Model>(files, pool);
          }};
}

extern const Family kCohere2;
extern const Family kGemma2;
extern const Family kGemma3;
extern const Family kGptOss;
extern const Family kLlama;
extern const Family kMuseGlimmer;
extern const Family kOlmo3;
extern const Family kPhi3;

}  // namespace slipring

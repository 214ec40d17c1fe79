// `slipring verify` must pass on sound caches and find broken ones: the write-first bug, a window short by one,
// sequences that get in each other's way, and programs that are not the model.
#include "engine/verify.h"

#include <cstring>
#include <gtest/gtest.h>

#include <slipring/full_kv_cache.h>
#include <slipring/ring_kv_cache.h>

#include "engine/export.h"
#include "engine/state_bytes.h"
#include "formats/safetensors_writer.h"
#include "formats/temp_folder.h"
#include "program/program.h"

namespace slipring::testing {
namespace {

std::filesystem::path data() {
  return std::filesystem::path(SLIPRING_SOURCE_DIR) / "tests/data";
}

/// A ring that is broken in one of the ways that other engines were. Everything else is a sound ring's.
class BrokenRing final : public LayerCache {
 public:
  enum class Fault : uint8_t {
    write_first,    ///< a step of many tokens evicts before its own first queries have read
    short_by_one,   ///< the oldest key of the window is lost
    shared_scratch  ///< the sequences of a step read from one buffer: alone, each is right
  };
  BrokenRing(Fault fault, int64_t window, KVLayout layout)
      : LayerCache(layout, "BrokenRing"), fault_(fault), window_(window), ring_(window, window, layout) {}

  bool is_ring() const noexcept override { return true; }
  int64_t first_held() const noexcept override { return ring_.first_held(); }
  int64_t room_before_wrap() const noexcept override { return ring_.room_before_wrap(); }
  int64_t bytes_held() const noexcept override { return ring_.bytes_held(); }
  KVView held_after(int64_t count) const override { return ring_.held_after(count); }
  KVView fetch_and_concat(const KVBlock& block) const override {
    KVView view = LayerCache::fetch_and_concat(block);
    if (fault_ == Fault::shared_scratch ? offset_ == 0 : offset_ < window_) return view;
    const KVRun own = view.runs.back();
    if (fault_ == Fault::shared_scratch) {
      view.runs = {to_scratch(), own};
      return view;
    }
    // What a query finds in slots that were written too early: new keys in the place of old ones.
    const KVBlock sound = copy_positions(ring_, ring_.first_held());
    k_ = sound.k().clone();
    v_ = sound.v().clone();
    const bool first = fault_ == Fault::write_first;
    overwrite(k_, block.k(), first ? 0 : 1, first ? std::min(block.query_len(), window_) : 1);
    overwrite(v_, block.v(), first ? 0 : 1, first ? std::min(block.query_len(), window_) : 1);
    view.runs = {{.k = k_.raw(), .v = v_.raw(), .first_position = ring_.first_held(), .count = window_}, own};
    return view;
  }
  using LayerCache::update;
  void update(const KVBlock& block, int64_t first, int64_t count) override {
    ring_.update(block, first, count);
    offset_ = ring_.offset();
  }
  bool can_resume_at(int64_t position) const noexcept override { return ring_.can_resume_at(position); }
  void truncate(int64_t position) override {
    ring_.truncate(position);
    offset_ = ring_.offset();
  }
  void restore(int64_t offset, const KVBlock& held) override {
    ring_.restore(offset, held);
    offset_ = ring_.offset();
  }

 private:
  void overwrite(Tensor& held, const Tensor& block, int64_t first, int64_t count) const {
    std::memcpy(static_cast<std::byte*>(held.raw()) + first * layout_.bytes(), block.raw(),
                static_cast<size_t>(count * layout_.bytes()));
  }

  /// Everything held, in a buffer that the next sequence's ring writes over.
  KVRun to_scratch() const {
    static Tensor k;
    static Tensor v;
    const KVBlock sound = copy_positions(ring_, ring_.first_held());
    if (k.bytes() != window_ * layout_.bytes()) {
      k = Tensor(layout_.dtype, {window_, layout_.n_kv_heads, layout_.head_dim});
      v = k.clone();
    }
    overwrite(k, sound.k(), 0, sound.query_len());
    overwrite(v, sound.v(), 0, sound.query_len());
    return {.k = k.raw(), .v = v.raw(), .first_position = ring_.first_held(), .count = sound.query_len()};
  }

  Fault fault_;
  int64_t window_;
  RingKVCache ring_;
  mutable Tensor k_, v_;  // of the last view given out
};

VerifyOptions broken(BrokenRing::Fault fault) {
  VerifyOptions options;
  options.threads = 1;
  options.make_caches = [fault](const std::vector<LayerSpec>& layers, DType kv_dtype) {
    Sequence sequence = make_sequence(layers, kv_dtype);
    for (size_t i = 0; i < layers.size(); ++i) {
      if (layers[i].kind == LayerKind::full) continue;
      sequence.caches[i] = std::make_unique<BrokenRing>(fault, layers[i].window, sequence.caches[i]->layout());
    }
    return sequence;
  };
  return options;
}

const VerifyCheck& named(const std::vector<VerifyCheck>& checks, const std::string& name) {
  for (const VerifyCheck& check : checks) {
    if (check.name == name) return check;
  }
  throw std::runtime_error("no check " + name);
}

TEST(Verify, PassesOnSoundCachesOfEveryType) {
  const auto model = Model::load(data() / "muse-glimmer");
  for (const DType kv : {DType::F16, DType::F32, DType::BF16}) {
    VerifyOptions options;
    options.threads = 1;
    options.kv_dtype = kv;
    options.drafter = data() / "muse-glimmer-assistant";
    const auto checks = verify_model(model, options);
    EXPECT_EQ(checks.size(), 8U);
    for (const VerifyCheck& check : checks) {
      EXPECT_TRUE(check.same) << check.name;
      EXPECT_EQ(check.largest, 0.0) << check.name;
      EXPECT_GE(check.cases, 48) << check.name;
    }
  }
}

TEST(Verify, FindsTheWriteFirstBug) {
  const auto checks = verify_model(Model::load(data() / "muse-glimmer"), broken(BrokenRing::Fault::write_first));
  for (const char* name : {"chunk sizes", "token by token", "drafts on and off", "ring against a full log"}) {
    EXPECT_FALSE(named(checks, name).same) << name;
    EXPECT_GT(named(checks, name).largest, 1e-3) << name;
  }
}

TEST(Verify, FindsAWindowThatIsShortByOne) {
  const auto checks = verify_model(Model::load(data() / "muse-glimmer"), broken(BrokenRing::Fault::short_by_one));
  EXPECT_FALSE(named(checks, "ring against a full log").same);
  EXPECT_FALSE(named(checks, "token by token").same);  // that path does not go through the broken function
}

TEST(Verify, OnlyTheBatchFindsSequencesThatShareABuffer) {
  const auto checks = verify_model(Model::load(data() / "muse-glimmer"), broken(BrokenRing::Fault::shared_scratch));
  for (const VerifyCheck& check : checks) EXPECT_EQ(check.same, check.name != "batch") << check.name;
  EXPECT_GT(named(checks, "batch").largest, 1e-3);
}

/// In the program of that name, every window is short by one.
VerifyOptions short_window_in_programs(std::string name) {
  VerifyOptions options;
  options.threads = 1;
  options.change_program = [name = std::move(name)](Program& program) {
    if (program.name != name) return;
    for (Node& node : program.nodes) {
      auto* use = std::get_if<AttentionUse>(&node.attributes);
      if (use != nullptr && use->window > 0) --use->window;
    }
  };
  return options;
}

TEST(Verify, OnlyTheProgramsFindAProgramThatIsNotTheModel) {
  const auto model = Model::load(data() / "muse-glimmer");
  for (const char* name : {"main", "score"}) {
    const auto checks = verify_model(model, short_window_in_programs(name));
    for (const VerifyCheck& check : checks) EXPECT_EQ(check.same, check.name != "programs") << name << check.name;
    EXPECT_GT(named(checks, "programs").largest, 1e-4) << name;
  }
}

TEST(Verify, ABundleHasNothingBesideItsPrograms) {
  const TempFolder folder;
  export_model(*Model::load(data() / "gemma3"), {.quantise = {}}, folder.path());
  VerifyOptions options;
  options.threads = 1;
  for (const VerifyCheck& check : verify_model(Model::load_bundle(folder.path()), options)) {
    EXPECT_TRUE(check.same) << check.name;
    EXPECT_EQ(check.cases == 0, check.name == "programs") << check.name << ": " << check.remark;
  }
}

/// A Llama of one layer, all weights alike: every layer sees everything.
void write_llama(const TempFolder& folder) {
  constexpr int64_t kHidden = 32;
  constexpr int64_t kVocab = 40;
  folder.write("config.json", R"({"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 32,
    "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 40,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-6})");
  std::vector<std::pair<std::string, Tensor>> tensors;
  const auto add = [&](const std::string& name, Shape shape) {
    Tensor tensor(DType::F32, std::move(shape));
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      tensor.data<float>()[i] = static_cast<float>((i * 37 + static_cast<int64_t>(tensors.size())) % 101 - 50) / 100.0F;
    }
    tensors.emplace_back(name, std::move(tensor));
  };
  add("model.embed_tokens.weight", {kVocab, kHidden});
  add("lm_head.weight", {kVocab, kHidden});
  add("model.norm.weight", {kHidden});
  for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                           "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
    add(std::string("model.layers.0.") + name + ".weight", {kHidden, kHidden});
  }
  add("model.layers.0.input_layernorm.weight", {kHidden});
  add("model.layers.0.post_attention_layernorm.weight", {kHidden});
  write_safetensors(folder.path() / "model.safetensors", tensors);
}

TEST(Verify, AModelWithoutSlidingLayersHasNoRingToCompare) {
  const TempFolder folder;
  write_llama(folder);
  VerifyOptions options;
  options.threads = 1;
  const auto checks = verify_model(Model::load(folder.path()), options);
  for (const VerifyCheck& check : checks) {
    EXPECT_TRUE(check.same) << check.name;
    EXPECT_EQ(check.cases == 0, check.name == "ring against a full log") << check.name;
  }
  EXPECT_EQ(named(checks, "ring against a full log").remark, "no layer slides");
}

TEST(Verify, ATextWrapsEveryRingWithinTheContext) {
  ModelSpec spec;
  spec.context_length = 4096;
  spec.layers.push_back({.kind = LayerKind::full, .window = 0, .n_kv_heads = 1, .head_dim = 8, .rope_theta = 1e4});
  EXPECT_GE(verify_length(spec), 48);
  spec.layers.push_back({.kind = LayerKind::sliding, .window = 128, .n_kv_heads = 1, .head_dim = 8, .rope_theta = 1e4});
  EXPECT_GT(verify_length(spec), 3 * 128);
  spec.layers[1].window = 512;
  EXPECT_GT(verify_length(spec), 512);
  EXPECT_LT(verify_length(spec), 1024);
  spec.context_length = 100;
  EXPECT_EQ(verify_length(spec), 100);
}

TEST(Verify, StopsWhenTold) {
  VerifyOptions options;
  options.progress = [](std::string_view, int64_t, int64_t) { return false; };
  EXPECT_THROW(verify_model(Model::load(data() / "muse-glimmer"), options), std::exception);
}

}  // namespace
}  // namespace slipring::testing

// Facts that every family reads in the same way.
#pragma once

#include "formats/model_files.h"
#include "models/decoder.h"
#include "models/weight_loader.h"

namespace slipring {

/// Sizes are bounded so that nothing derived from them overflows or allocates without measure.
inline constexpr int64_t kMaxLayers = 4096;
inline constexpr int64_t kMaxFeatures = int64_t{1} << 20;
inline constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
inline constexpr int64_t kMaxContext = int64_t{1} << 30;

/// What all transformer configs have.
struct CommonConfig {
  int64_t n_layers = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t vocab_size = 0;
  int64_t context_length = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  double norm_eps = 0.0;
};

/// Reads and checks them. head_dim defaults to hidden_size / n_heads, n_kv_heads to n_heads; the vocabulary's size is
/// the embedding table's where the config does not say.
/// @throws Error{bad_file} naming the key
CommonConfig read_common_config(const ModelFiles& files);

/// Fills what every family's spec has, one LayerSpec for each kind.
void fill_spec(ModelSpec& spec, const char* family, const ModelFiles& files, const CommonConfig& config,
               const std::vector<LayerKind>& kinds, int64_t window);

/// Position embedding from the files: plain, linear scaling or Llama 3's by frequency bands; GGUF's "rope_freqs.weight"
/// where present.
/// @param theta    base of the frequencies
/// @param section  Hugging Face: the object that holds rope_type and its parameters ("rope_parameters", or
/// "rope_parameters/full_attention")
/// @throws Error{unsupported} naming another rope_type
Rope read_rope(const WeightLoader& load, double theta, int rotary_dim, std::string_view section, RopeLayout layout);

/// How a family lays out its sliding and full layers where the file has no explicit list.
struct LayerPattern {
  int64_t period = 0;        ///< 0: every layer is `rest`
  int64_t full_residue = 0;  ///< layer i is full when i % period == full_residue
  LayerKind rest = LayerKind::sliding;
};

/// Kind of each layer: an explicit list in the file (layer_types, or GGUF's sliding_window_pattern array) beats a
/// period in the file, and a period beats `fallback`. Adds a notice to `spec` when the fallback was used.
/// @throws Error{bad_file} for a list of another length, an unknown kind, or a window outside 1 .. kMaxContext where a
/// layer slides
std::vector<LayerKind> read_layer_kinds(const ModelFiles& files, int64_t n_layers, LayerPattern fallback,
                                        ModelSpec& spec);

/// The window of sliding layers; `fallback` where the file has none (0: it is required), with a notice.
int64_t read_window(const ModelFiles& files, int64_t fallback, ModelSpec& spec);

}  // namespace slipring

// Facts that every family reads in the same way.
#pragma once

#include "formats/model_files.h"
#include "models/decoder.h"
#include "models/weight_loader.h"

namespace slipring {

/// Sizes are bounded so that nothing derived from them overflows or allocates without measure.
inline constexpr int64_t kMaxLayers = 4096;
inline constexpr int64_t kMaxHeads = 65536;
inline constexpr int64_t kMaxHeadDim = 8192;
inline constexpr int64_t kMaxFeatures = int64_t{1} << 20;
inline constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
inline constexpr int64_t kMaxContext = int64_t{1} << 30;

/// @throws Error{bad_file} that names the files and the key
[[noreturn]] void bad_key(const ModelFiles& files, std::string_view key, std::string expected, std::string got);

/// A number above 0, in float32 too; `fallback` where the files have none. @throws Error{bad_file} naming the key
double read_positive(const ModelFiles& files, Names key, double fallback);
/// What attention scores or logits are soft-capped at; 0: not at all. @throws Error{bad_file} naming the key
float read_softcap(const ModelFiles& files, Names key, double fallback);

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

  int64_t query_width() const noexcept { return int64_t{n_heads} * head_dim; }
  int64_t kv_width() const noexcept { return int64_t{n_kv_heads} * head_dim; }
};

/// What a family's config.json may leave out, since the reference has a default for it (0: nothing may be left out),
/// and what it must say if it says anything.
struct CommonDefaults {
  int64_t context_length = 0;
  int n_heads = 0;
  int n_kv_heads = 0;  ///< 0: as many as heads
  int head_dim = 0;    ///< 0: hidden_size / n_heads
  double norm_eps = 1e-5;
  std::string_view activation_key = "hidden_act";
  std::string_view activation = "silu";
};

/// Reads and checks them, and refuses facts that no family's layers could take over: another activation, values of
/// another width than keys, a vocabulary of another size than the embedding table. The vocabulary's size is the
/// embedding table's. GGUF files have no defaults but head_dim's and n_kv_heads' computed ones.
/// @throws Error{bad_file} naming the key
CommonConfig read_common_config(const ModelFiles& files, const CommonDefaults& defaults = {});

/// Fills what every family's spec has, one LayerSpec for each kind. A window that reaches beyond the model's context
/// hides nothing; it is cut to the context, with a notice, so that rings are never longer than what they can hold.
void fill_spec(ModelSpec& spec, const char* family, const ModelFiles& files, const CommonConfig& config,
               const std::vector<LayerKind>& kinds, int64_t window);

/// The base of the frequencies: `section`/rope_theta, or the older top-level key, or what all layers share; in GGUF
/// files `gguf_key`; `fallback` where the files have none. @throws Error{bad_file} unless it is above 0
double read_theta(const ModelFiles& files, std::string_view section, double fallback,
                  std::string_view older_key = "rope_theta", std::string_view gguf_key = "rope.freq_base");

/// What read_rope() does where the files leave a choice.
struct RopeChoices {
  bool yarn_truncates = true;  ///< YaRN: whether the bounds of its ramp are whole dimensions, unless the files say
  bool long_factors = false;   ///< LongRoPE: the factors for texts beyond the original context, not those up to it
};

/// Position embedding from the files: plain, linear scaling, Llama 3's by frequency bands, YaRN or LongRoPE; GGUF's
/// "rope_freqs.weight" where present.
/// @param theta    base of the frequencies
/// @param section  Hugging Face: the object that holds rope_type and its parameters ("rope_parameters", or
///                 "rope_parameters/full_attention")
/// @throws Error{unsupported} naming another rope_type; Error{bad_file} for factors that are no factors
Rope read_rope(const WeightLoader& load, double theta, int rotary_dim, std::string_view section, RopeLayout layout,
               const RopeChoices& choices = {});

/// The rope_type of a section, "default" where there is none; "longrope" for GGUF files that hold its factors.
std::string rope_type(const ModelFiles& files, std::string_view section);

/// LongRoPE: positions up to which the short factors hold.
int64_t longrope_original_context(const ModelFiles& files, std::string_view section);

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

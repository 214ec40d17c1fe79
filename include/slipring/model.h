// A model that can be run: its weights, its vocabulary and its facts. Load once, share between sessions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <slipring/model_spec.h>
#include <slipring/tokenizer.h>

namespace slipring {

class Decoder;
class ModelFiles;

struct ModelOptions {
  int threads = 0;      ///< threads that pack the weights; 0: all usable cores
  int64_t context = 0;  ///< positions that its sessions will use, 0: the model's default. Phi-3's LongRoPE has other
                        ///< factors for texts beyond its original context; no other model looks at it
};

/// Immutable. Threads: everything here may be used from any number of threads.
class Model {
 public:
  /// Opens a GGUF file or a Hugging Face folder, reads the config, packs the weights for this machine.
  /// An empty path means the embedded default, glimmer-tiny.
  /// @throws Error{not_found, bad_file, unsupported, io, out_of_memory}; the message names the file and what is wrong
  static std::shared_ptr<const Model> load(const std::filesystem::path& path, const ModelOptions& options = {});
  /// Opens a bundle that `slipring export` wrote: its programs run on the kernels that the model's own code runs on.
  /// @throws as load(); Error{bad_file} for a program that is not sound
  static std::shared_ptr<const Model> load_bundle(const std::filesystem::path& folder,
                                                  const ModelOptions& options = {});
  ~Model();

  const ModelSpec& spec() const noexcept;
  /// @throws Error{not_found} for weights that came without a vocabulary: those take token ids only
  const Tokenizer& tokenizer() const;
  std::shared_ptr<const Tokenizer> shared_tokenizer() const;
  bool has_tokenizer() const noexcept { return tokenizer_ != nullptr; }
  const std::filesystem::path& path() const noexcept { return path_; }
  int64_t file_bytes() const noexcept { return file_bytes_; }  ///< bytes of the weight files
  int64_t weight_bytes() const noexcept;                       ///< bytes that the packed weights hold
  /// 64 bits that differ between models with other weights or another geometry: what a snapshot is checked against.
  uint64_t identity() const noexcept { return identity_; }

  // For slipring's own layers.
  const Decoder& decoder() const noexcept { return *decoder_; }
  std::shared_ptr<const Decoder> shared_decoder() const noexcept { return decoder_; }

  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

 private:
  Model() = default;
  std::filesystem::path path_;
  std::shared_ptr<const Decoder> decoder_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string no_tokenizer_;  // why there is none
  int64_t file_bytes_ = 0;
  uint64_t identity_ = 0;
};

/// Path of the embedded default model: in models/ of the source tree, or below share/slipring of an installation.
/// @throws Error{not_found} naming the places that were tried
std::filesystem::path default_model_path();
/// Path of the default model's drafter. @throws like default_model_path()
std::filesystem::path default_drafter_path();

/// What `serve` and perplexity() take where no context is asked for: the model's own, but at most this many positions,
/// so that a long-context model does not promise memory that the machine lacks. A Session takes the model's own.
inline constexpr int64_t kDefaultContext = 8192;

}  // namespace slipring

// Tensors of a model's files -> weights that ops take, with shapes checked and the file's pages given back once packed.
#pragma once

#include <string>
#include <unordered_set>

#include "formats/model_files.h"
#include "kernels/thread_pool.h"
#include "ops/weights.h"
#include "tensor/shared_pages.h"

namespace slipring {

/// Used while one model is being built. Threads: one.
///
/// Names are given as the shortest published form has them ("layers.{}.mlp.up_proj.weight"); Hugging Face folders put
/// "model." or, inside multi-modal models, a longer prefix in front, which the loader finds by looking for the
/// embedding table. A leading '/' means that no prefix is added ("/lm_head.weight").
class WeightLoader {
 public:
  /// The embedding table of every family.
  static constexpr Names kEmbedding{"embed_tokens.weight", "token_embd.weight"};

  WeightLoader(const ModelFiles& files, ThreadPool& pool);

  const ModelFiles& files() const noexcept { return files_; }
  /// The embedding table as the file has it, or an empty tensor.
  static Tensor embedding_table(const ModelFiles& files);
  /// The tensor as the file has it, or an empty one.
  Tensor find(Names name, int64_t layer = -1) const;

  /// [out_features, in_features]. @throws Error{bad_file} if it is absent or has another shape
  Linear linear(Names name, int64_t out_features, int64_t in_features, int64_t layer = -1);
  /// linear(), with a bias of that name where the files have one.
  Linear linear_with_bias(Names name, Names bias, int64_t out_features, int64_t in_features, int64_t layer = -1);
  /// The same, or an empty Linear where the files have no such tensor.
  Linear optional_linear(Names name, int64_t out_features, int64_t in_features, int64_t layer = -1);
  /// Rows `first` to `first + out_features` - 1 of a matrix [whole, in_features] that holds several maps one after the
  /// other. @throws Error{bad_file}
  Linear linear_rows(Names name, int64_t whole, int64_t first, int64_t out_features, int64_t in_features,
                     int64_t layer = -1);
  /// A map that was cut from, or made of, tensors of the files; `name` is what programs and fingerprints know it by.
  Linear pack(const std::string& name, const Tensor& tensor);
  /// The name as the files have it.
  std::string full_name(Names name, int64_t layer) const;
  /// The tensor as the file has it. @throws Error{bad_file} if it is absent or has another shape
  Tensor require(Names name, Shape shape, int64_t layer = -1) const;
  /// [size] as float32, plus `offset` on each element: 1 where a family stores weights relative to one.
  Norm norm(Names name, int64_t size, double eps, int64_t layer = -1, float offset = 0.0F);
  /// A norm without weights.
  static Norm plain_norm(int64_t size, double eps);
  /// Any plain tensor as float32. @throws Error{bad_file}
  Tensor vector(Names name, Shape shape, int64_t layer = -1);

  /// Every tensor of the layers has been asked for. @throws Error{bad_file} naming one that was not: a bias that the
  /// family does not know, a layer beyond the number that the files tell
  void check_all_used() const;

  /// Bytes of everything loaded so far.
  int64_t bytes() const noexcept { return bytes_; }
  /// A hash over names, shapes, types and a sample of the bytes of everything loaded so far.
  uint64_t fingerprint() const noexcept { return fingerprint_; }

 private:
  void note(const std::string& name, const Tensor& tensor) noexcept;

  SharedPages pages_;  // all weights of the model in huge pages
  const ModelFiles& files_;
  ThreadPool& pool_;
  std::string prefix_;  // of Hugging Face names
  mutable std::unordered_set<std::string> used_;
  int64_t bytes_ = 0;
  uint64_t fingerprint_ = 0xcbf29ce484222325ULL;
};

/// Part `index` of a tensor's outermost dimension, as a view that lives no longer than `tensor` does: one expert's
/// matrix of [n_experts, rows, cols].
Tensor part_of(const Tensor& tensor, int64_t index);

}  // namespace slipring

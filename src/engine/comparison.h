// What one check of verify_model() compares, and how far apart it was.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <slipring/model_spec.h>
#include <slipring/tensor.h>

#include "engine/sequence.h"
#include "engine/verify.h"

namespace slipring {

/// Collects differences, bit for bit.
class Comparison {
 public:
  /// Two rows of logits, of the same length.
  void rows(std::span<const float> a, std::span<const float> b);
  void tokens(std::span<const TokenId> a, std::span<const TokenId> b);
  /// What both hold of a sliding layer's window and of a full layer: the same positions, the same bytes.
  void caches(const Sequence& a, const Sequence& b, const std::vector<LayerSpec>& layers);
  /// The finished line of the table.
  VerifyCheck check(std::string name, std::string remark) &&;

 private:
  void tensors(const Tensor& a, const Tensor& b);
  void differ(double a, double b);

  VerifyCheck check_;
};

}  // namespace slipring

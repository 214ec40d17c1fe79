// Kernels of Q2_K, Q3_K, Q4_K, Q5_K, Q6_K. One source a family of formats, so that they compile in parallel.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_quantised_super.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first: it includes this file once a target.
#include "kernels/matmul_quantised-inl.h"

HWY_BEFORE_NAMESPACE();
namespace slipring {
namespace HWY_NAMESPACE {

QuantisedTile ChooseSuper(DType dtype) {
  switch (dtype) {
    case DType::Q2_K:
      return QuantisedTileFor<DType::Q2_K>;
    case DType::Q3_K:
      return QuantisedTileFor<DType::Q3_K>;
    case DType::Q4_K:
      return QuantisedTileFor<DType::Q4_K>;
    case DType::Q5_K:
      return QuantisedTileFor<DType::Q5_K>;
    case DType::Q6_K:
      return QuantisedTileFor<DType::Q6_K>;
    default:
      return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace slipring
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipring {

HWY_EXPORT(ChooseSuper);

QuantisedTile quantised_tile_super(DType dtype) {
  return HWY_DYNAMIC_DISPATCH(ChooseSuper)(dtype);
}

}  // namespace slipring
#endif  // HWY_ONCE

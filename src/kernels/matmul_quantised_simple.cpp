// Kernels of Q8_0, Q4_0, Q4_1, Q5_0, Q5_1. One source a family of formats, so that they compile in parallel.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_quantised_simple.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first: it includes this file once a target.
#include "kernels/matmul_quantised-inl.h"

HWY_BEFORE_NAMESPACE();
namespace slipring {
namespace HWY_NAMESPACE {

QuantisedTile ChooseSimple(DType dtype) {
  switch (dtype) {
    case DType::Q8_0:
      return QuantisedTileFor<DType::Q8_0>;
    case DType::Q4_0:
      return QuantisedTileFor<DType::Q4_0>;
    case DType::Q4_1:
      return QuantisedTileFor<DType::Q4_1>;
    case DType::Q5_0:
      return QuantisedTileFor<DType::Q5_0>;
    case DType::Q5_1:
      return QuantisedTileFor<DType::Q5_1>;
    default:
      return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace slipring
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipring {

HWY_EXPORT(ChooseSimple);

QuantisedTile quantised_tile_simple(DType dtype) {
  return HWY_DYNAMIC_DISPATCH(ChooseSimple)(dtype);
}

}  // namespace slipring
#endif  // HWY_ONCE

// Kernels of IQ4_NL, IQ4_XS, MXFP4, IQ3_S, IQ3_XXS, IQ2_S. One source a family of formats, so that they compile in
// parallel.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_quantised_table.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first: it includes this file once a target.
#include "kernels/matmul_quantised-inl.h"

HWY_BEFORE_NAMESPACE();
namespace slipring {
namespace HWY_NAMESPACE {

QuantisedTile ChooseTable(DType dtype) {
  switch (dtype) {
    case DType::IQ4_NL:
      return QuantisedTileFor<DType::IQ4_NL>;
    case DType::IQ4_XS:
      return QuantisedTileFor<DType::IQ4_XS>;
    case DType::MXFP4:
      return QuantisedTileFor<DType::MXFP4>;
    case DType::IQ3_S:
      return QuantisedTileFor<DType::IQ3_S>;
    case DType::IQ3_XXS:
      return QuantisedTileFor<DType::IQ3_XXS>;
    case DType::IQ2_S:
      return QuantisedTileFor<DType::IQ2_S>;
    default:
      return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace slipring
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipring {

HWY_EXPORT(ChooseTable);

QuantisedTile quantised_tile_table(DType dtype) {
  return HWY_DYNAMIC_DISPATCH(ChooseTable)(dtype);
}

}  // namespace slipring
#endif  // HWY_ONCE

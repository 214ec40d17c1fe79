// foreach_target.h for the kernels written in Lanes: those targets that lanes-inl.h has its own code for, and the plain
// one. Where a machine's best target is none of them, dispatch takes the next best. No include guard, like the
// original.
#undef HWY_DISABLED_TARGETS
#ifdef SLIPRING_NO_AVX512
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

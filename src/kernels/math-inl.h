// exp, tanh, sigmoid and their kin on sixteen lanes: the same polynomials, so the same bits, on every target.
#if defined(SLIPRING_KERNELS_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIPRING_KERNELS_MATH_INL_H_
#undef SLIPRING_KERNELS_MATH_INL_H_
#else
#define SLIPRING_KERNELS_MATH_INL_H_
#endif

#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace slipring {
namespace HWY_NAMESPACE {

/// e^x to 1 ulp. Below -86.6 (results under 2^-125) exactly 0; infinity from 88.73 on; NaN stays NaN; exactly 1 at 0.
/// x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 in two parts; e^r by a minimax polynomial of degree 6 (3.1e-9 relative).
HWY_INLINE Lanes Exp(Lanes x) {
  const Lanes lowest = Set(-86.6F);
  const Lanes inside = Min(Set(89.0F), Max(lowest, x));
  const Lanes n = Round(Mul(inside, Set(1.44269504F)));
  const Lanes r = Fma(n, Set(2.12194440e-4F), Fma(n, Set(-0.693359375F), inside));
  Lanes p = Set(0x1.6a2352p-10F);
  p = Fma(p, r, Set(0x1.123a6cp-7F));
  p = Fma(p, r, Set(0x1.5558f4p-5F));
  p = Fma(p, r, Set(0x1.555490p-3F));
  p = Fma(p, r, Set(0x1.fffffcp-2F));
  const Lanes y = Add(Set(1.0F), Fma(Mul(r, r), p, r));
  // Twice y times 2^(n - 1): n reaches 128, whose power is no float.
  const Lanes result = Mul(Add(y, y), Pow2(Sub(n, Set(1.0F))));
  return SelectLess(x, lowest, Zero(), result);
}

/// 1 / (1 + e^-x) to 2 ulp; exactly 0 below -88.73.
HWY_INLINE Lanes Sigmoid(Lanes x) {
  const Lanes one = Set(1.0F);
  return Div(one, Add(one, Exp(Sub(Zero(), x))));
}

/// tanh x to 2 ulp: an odd polynomial below 0.625, 1 - 2 / (e^2|x| + 1) above.
HWY_INLINE Lanes Tanh(Lanes x) {
  const Lanes size = Abs(x);
  const Lanes z = Mul(x, x);
  Lanes p = Set(-0.005704987F);
  p = Fma(p, z, Set(0.020639086F));
  p = Fma(p, z, Set(-0.053739715F));
  p = Fma(p, z, Set(0.13331442F));
  p = Fma(p, z, Set(-0.3333328F));
  const Lanes near = Fma(Mul(p, z), x, x);
  const Lanes one = Set(1.0F);
  const Lanes far = Sub(one, Div(Set(2.0F), Add(Exp(Add(size, size)), one)));
  return SelectLess(size, Set(0.625F), near, CopySign(far, x));
}

/// cap * tanh(x / cap)
HWY_INLINE Lanes Softcap(Lanes x, float cap) {
  return Mul(Set(cap), Tanh(Div(x, Set(cap))));
}

}  // namespace HWY_NAMESPACE
}  // namespace slipring
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

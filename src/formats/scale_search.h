// Searches for the scale (and minimum) with which a group of floats loses least when rounded to a few levels.
//
// For a scale held fixed the best levels are known (round), and for levels held fixed the best scale is known (least
// squares). The search rounds with a row of starting scales around the one that maps the extreme value to the last
// level, solves for the best scale of each, keeps the one with the smallest squared error, and then alternates the two
// steps while the error falls. Sums run in eight fixed lanes: fast without reassociation, and the same on every
// machine.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tensor/half.h"

namespace slipring {

/// x is near scale * q + min.
struct Affine {
  float scale = 0;
  float min = 0;
};

enum class MinRule : uint8_t {
  any,
  not_positive  ///< the K types store -min without a sign
};

namespace scale_search {

inline constexpr int kLanes = 8;

/// The level next to v: clamped first, then rounded to nearest even by adding 1.5 * 2^23, which vectorises.
inline float round_clamped(float v, float lo, float hi) noexcept {
  constexpr float kMagic = 12582912.0F;
  const float below = v < hi ? v : hi;
  const float inside = below > lo ? below : lo;  // NaN ends up at lo
  return (inside + kMagic) - kMagic;
}

inline float inverse_or_zero(float scale) noexcept {
  return scale == 0 ? 0 : 1 / scale;
}

inline double add_lanes(const float (&lanes)[kLanes]) noexcept {
  double sum = 0;
  for (const float lane : lanes) sum += static_cast<double>(lane);
  return sum;
}

/// Sums over the levels q that x rounds to.
struct Sums {
  double q = 0;
  double qq = 0;
  double xq = 0;
};

template <int N>
Sums sums_of(const float* x, float inverse, float min, float lo, float hi) noexcept {
  static_assert(N % kLanes == 0);
  float q_lanes[kLanes] = {};
  float qq_lanes[kLanes] = {};
  float xq_lanes[kLanes] = {};
  for (int i = 0; i < N; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float q = round_clamped((x[i + lane] - min) * inverse, lo, hi);
      q_lanes[lane] += q;
      qq_lanes[lane] += q * q;
      xq_lanes[lane] += x[i + lane] * q;
    }
  }
  return {add_lanes(q_lanes), add_lanes(qq_lanes), add_lanes(xq_lanes)};
}

}  // namespace scale_search

/// float16 bits of a scale; one too large for float16 becomes its largest finite number.
inline uint16_t finite_f16(float value) noexcept {
  constexpr float kLargest = 65504;
  return f16_from_f32(std::clamp(value, -kLargest, kLargest));
}

/// q[i] = the level in [lo, hi] nearest to (x[i] - min) / scale, minus lo.
template <int N>
void round_to_levels(const float* x, float scale, float min, int lo, int hi, uint8_t* q) noexcept {
  const float inverse = scale_search::inverse_or_zero(scale);
  const auto low = static_cast<float>(lo);
  const auto high = static_cast<float>(hi);
  for (int i = 0; i < N; ++i) {
    q[i] = static_cast<uint8_t>(scale_search::round_clamped((x[i] - min) * inverse, low, high) - low);
  }
}

/// Sum of (x - (scale * q + min))^2 for the levels that round_to_levels() picks.
template <int N>
double squared_error(const float* x, float scale, float min, int lo, int hi) noexcept {
  const float inverse = scale_search::inverse_or_zero(scale);
  const auto low = static_cast<float>(lo);
  const auto high = static_cast<float>(hi);
  float lanes[scale_search::kLanes] = {};
  for (int i = 0; i < N; i += scale_search::kLanes) {
    for (int lane = 0; lane < scale_search::kLanes; ++lane) {
      const float value = x[i + lane];
      const float q = scale_search::round_clamped((value - min) * inverse, low, high);
      const float difference = value - (scale * q + min);
      lanes[lane] += difference * difference;
    }
  }
  return scale_search::add_lanes(lanes);
}

/// The scale (of either sign) with the least squared error for levels lo..hi, lo < 0 < hi. 0 for all zeros.
template <int N>
float search_scale(const float* x, int lo, int hi) noexcept {
  float extreme = 0;
  for (int i = 0; i < N; ++i) {
    if (std::abs(x[i]) > std::abs(extreme)) extreme = x[i];
  }
  constexpr float kTiny = 1e-30F;  // below what float16 scales hold by far
  if (std::abs(extreme) < kTiny) return 0;

  const auto low = static_cast<float>(lo);
  const auto high = static_cast<float>(hi);
  double best_gain = -1;  // of the squared error, over rounding all to zero
  float best = 0;
  const auto consider = [&](float inverse) {
    const scale_search::Sums sums = scale_search::sums_of<N>(x, inverse, 0, low, high);
    if (sums.qq <= 0) return false;
    const double gain = sums.xq * sums.xq / sums.qq;
    if (gain <= best_gain) return false;
    best_gain = gain;
    best = static_cast<float>(sums.xq / sums.qq);
    return true;
  };
  constexpr int kSteps = 7;  // to each side
  constexpr float kStep = 0.2F;
  for (int step = -kSteps; step <= kSteps; ++step) {
    const float shift = kStep * static_cast<float>(step);
    consider((low - shift) / extreme);
    consider((high + shift) / extreme);
  }
  constexpr int kRefinements = 4;
  for (int i = 0; i < kRefinements; ++i) {
    if (!consider(scale_search::inverse_or_zero(best))) break;
  }
  return best;
}

/// The scale >= 0 and minimum with the least squared error for levels 0..levels.
template <int N>
Affine search_affine(const float* x, int levels, MinRule rule) noexcept {
  float smallest = x[0];
  float largest = x[0];
  double x_sum = 0;
  for (int i = 0; i < N; ++i) {
    smallest = std::min(smallest, x[i]);
    largest = std::max(largest, x[i]);
    x_sum += static_cast<double>(x[i]);
  }
  if (rule == MinRule::not_positive) smallest = std::min(smallest, 0.0F);
  const float range = largest - smallest;
  constexpr float kTiny = 1e-30F;
  if (!(range > kTiny)) return {0, smallest};

  const auto top = static_cast<float>(levels);
  // The error without the constant sum of x^2.
  const auto error_of = [x_sum](const scale_search::Sums& s, double scale, double min) {
    return scale * (scale * s.qq + 2 * min * s.q - 2 * s.xq) + min * (N * min - 2 * x_sum);
  };
  double best_error = HUGE_VAL;
  Affine best{range / top, smallest};
  const auto consider = [&](float inverse, float start) {
    const scale_search::Sums s = scale_search::sums_of<N>(x, inverse, start, 0, top);
    const double determinant = N * s.qq - s.q * s.q;
    if (determinant <= 0) return false;
    double scale = (N * s.xq - x_sum * s.q) / determinant;
    double min = (x_sum * s.qq - s.q * s.xq) / determinant;
    if (rule == MinRule::not_positive && min > 0) {
      min = 0;
      scale = s.xq / s.qq;
    }
    const double error = error_of(s, scale, min);
    if (scale <= 0 || error >= best_error) return false;
    best_error = error;
    best = {static_cast<float>(scale), static_cast<float>(min)};
    return true;
  };
  constexpr int kSteps = 16;
  constexpr float kFirst = -1.0F;
  constexpr float kStep = 0.15F;
  for (int step = 0; step <= kSteps; ++step) {
    consider((top + kFirst + kStep * static_cast<float>(step)) / range, smallest);
  }
  constexpr int kRefinements = 5;
  for (int i = 0; i < kRefinements; ++i) {
    if (!consider(scale_search::inverse_or_zero(best.scale), best.min)) break;
  }
  return best;
}

}  // namespace slipring

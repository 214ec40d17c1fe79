#include <fmt/format.h>

#include <slipring/error.h>
#include <slipring/masks.h>

namespace slipring {
namespace {

struct Numbers {
  int64_t offset;
  int64_t query_len;
};

Numbers checked(const ring::Step& step, const char* where) {
  ring::check_geometry(step.capacity, step.window, where);
  const Numbers numbers{.offset = step.offset.value(), .query_len = step.query_len.value()};
  if (numbers.offset < 0 || numbers.query_len < 1) {
    throw Error(ErrorCode::invalid_argument,
                {.where = where,
                 .expected = "offset >= 0 and query_len >= 1",
                 .got = fmt::format("offset {} and query_len {}", numbers.offset, numbers.query_len),
                 .advice = {}});
  }
  return numbers;
}

}  // namespace

Tensor ring_window_causal_mask(const ring::Step& step) {
  const auto [offset, query_len] = checked(step, "ring_window_causal_mask");
  Tensor mask(DType::Bool, {query_len, step.capacity});
  auto* entry = mask.data<uint8_t>();
  for (int64_t i = 0; i < query_len; ++i) {
    for (int64_t slot = 0; slot < step.capacity; ++slot) {
      const int64_t key = ring::position_after_write(slot, offset, query_len, step.capacity);
      *entry++ = static_cast<uint8_t>(ring::sees(offset + i, key, step.window));
    }
  }
  return mask;
}

Tensor concat_window_causal_mask(const ring::Step& step) {
  const auto [offset, query_len] = checked(step, "concat_window_causal_mask");
  Tensor mask(DType::Bool, {query_len, step.capacity + query_len});
  auto* entry = mask.data<uint8_t>();
  for (int64_t i = 0; i < query_len; ++i) {
    for (int64_t slot = 0; slot < step.capacity; ++slot) {
      const int64_t key = ring::position_before_write(slot, offset, step.capacity);
      *entry++ = static_cast<uint8_t>(ring::sees(offset + i, key, step.window));
    }
    for (int64_t j = 0; j < query_len; ++j) {
      *entry++ = static_cast<uint8_t>(ring::sees(offset + i, offset + j, step.window));
    }
  }
  return mask;
}

Tensor ring_window_causal_mask(int64_t offset, int64_t query_len, int64_t capacity, int64_t window) {
  return ring_window_causal_mask(
      ring::Step{.offset = offset, .query_len = query_len, .capacity = capacity, .window = window});
}

Tensor concat_window_causal_mask(int64_t offset, int64_t query_len, int64_t capacity, int64_t window) {
  return concat_window_causal_mask(
      ring::Step{.offset = offset, .query_len = query_len, .capacity = capacity, .window = window});
}

}  // namespace slipring

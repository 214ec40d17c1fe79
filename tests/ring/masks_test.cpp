// Property: both masks, and the position rule that kernels use, against a brute-force replay of the ring's writes.
#include <algorithm>
#include <functional>
#include <gtest/gtest.h>

#include <slipring/masks.h>
#include <slipring/ring_kv_cache.h>

#include "support.h"

namespace slipring::test {
namespace {

struct Geometry {
  int64_t capacity;
  int64_t window;
};

const Geometry kGeometries[] = {{8, 8}, {8, 4}, {16, 16}, {16, 8}, {32, 32}, {32, 16}, {12, 12}, {20, 7}, {1, 1}};

/// The ring as an array of positions, filled one write at a time; -1 is an empty slot.
std::vector<int64_t> replay(int64_t end, int64_t capacity) {
  std::vector<int64_t> slots(static_cast<size_t>(capacity), -1);
  for (int64_t p = 0; p < end; ++p) slots[static_cast<size_t>(p % capacity)] = p;
  return slots;
}

/// Positions of the columns of a mask: slots after the write, or slots before it and then the step's own keys.
std::vector<int64_t> columns_after_write(int64_t offset, int64_t query_len, int64_t capacity) {
  return replay(offset + query_len, capacity);
}

std::vector<int64_t> columns_before_write(int64_t offset, int64_t query_len, int64_t capacity) {
  auto columns = replay(offset, capacity);
  for (int64_t p = offset; p < offset + query_len; ++p) columns.push_back(p);
  return columns;
}

std::vector<uint8_t> mask_of(const std::vector<int64_t>& columns, int64_t offset, int64_t query_len, int64_t window) {
  std::vector<uint8_t> mask;
  for (int64_t query = offset; query < offset + query_len; ++query) {
    for (const int64_t key : columns) mask.push_back(key >= 0 && key > query - window && key <= query ? 1 : 0);
  }
  return mask;
}

using MaskFunction = std::function<Tensor(int64_t offset, int64_t query_len, int64_t capacity, int64_t window)>;
using Columns = std::vector<int64_t> (*)(int64_t offset, int64_t query_len, int64_t capacity);

/// Number of (offset, Q) cases of all geometries in which the mask is not the replay's, bit for bit.
int wrong_masks(const MaskFunction& mask, Columns columns) {
  int wrong = 0;
  for (const auto& [capacity, window] : kGeometries) {
    for (int64_t offset = 0; offset <= 3 * capacity; ++offset) {
      for (int64_t query_len = 1; query_len <= capacity - offset % capacity; ++query_len) {
        const Tensor got = mask(offset, query_len, capacity, window);
        const auto expected = mask_of(columns(offset, query_len, capacity), offset, query_len, window);
        const std::vector<uint8_t> bits(got.data<uint8_t>(), got.data<uint8_t>() + got.elements());
        if (bits != expected || got.dtype() != DType::Bool || got.shape()[0] != query_len) ++wrong;
      }
    }
  }
  return wrong;
}

MaskFunction ring_mask = [](auto... n) { return ring_window_causal_mask(n...); };
MaskFunction concat_mask = [](auto... n) { return concat_window_causal_mask(n...); };

TEST(MaskProof, RingMaskIsTheReplayOfAllWrites) {
  EXPECT_EQ(wrong_masks(ring_mask, columns_after_write), 0);
}

TEST(MaskProof, ConcatMaskIsTheReplayBeforeTheStepThenTheStep) {
  EXPECT_EQ(wrong_masks(concat_mask, columns_before_write), 0);
}

TEST(MaskProof, ConcatMaskShowsEachVisiblePositionExactlyOnceForAnyQueryLen) {
  for (const auto& [capacity, window] : kGeometries) {
    for (int64_t offset = 0; offset <= 2 * capacity; ++offset) {
      for (int64_t query_len = 1; query_len <= capacity + 3; ++query_len) {  // past the wrap too: reading it is free
        const Tensor mask = concat_window_causal_mask(offset, query_len, capacity, window);
        const auto columns = columns_before_write(offset, query_len, capacity);
        for (int64_t i = 0; i < query_len; ++i) {
          std::vector<int64_t> seen;
          for (size_t c = 0; c < columns.size(); ++c) {
            if (mask.data<uint8_t>()[static_cast<size_t>(i) * columns.size() + c] != 0) seen.push_back(columns[c]);
          }
          std::sort(seen.begin(), seen.end());
          std::vector<int64_t> expected;
          for (int64_t p = std::max<int64_t>(0, offset + i - window + 1); p <= offset + i; ++p) expected.push_back(p);
          ASSERT_EQ(seen, expected) << "capacity " << capacity << " window " << window << " offset " << offset;
        }
      }
    }
  }
}

/// What a kernel visits: the positions of the view's runs that the rule admits, with the memory each was read from.
std::vector<std::pair<int64_t, const void*>> visited(const KVView& view, const PositionRule& rule, int64_t query) {
  std::vector<std::pair<int64_t, const void*>> result;
  for (const KVRun& run : view.runs) {
    for (int64_t i = 0; i < run.count; ++i) {
      const int64_t position = run.first_position + i;
      if (position >= rule.first(query) && position < rule.end(query, view.end_position())) {
        result.emplace_back(position, static_cast<const float*>(run.k) + i * kKVHeads * kDim);
      }
    }
  }
  std::sort(result.begin(), result.end());
  return result;
}

/// What the mask shows, with the memory of each column.
std::vector<std::pair<int64_t, const void*>> shown(const Tensor& mask, int64_t row, const std::vector<int64_t>& columns,
                                                   const Tensor& slots, const Tensor* block) {
  std::vector<std::pair<int64_t, const void*>> result;
  const int64_t capacity = slots.shape()[0];
  for (int64_t c = 0; c < mask.shape()[1]; ++c) {
    if (mask.data<uint8_t>()[row * mask.shape()[1] + c] == 0) continue;
    const float* memory = c < capacity ? slots.data<float>() + c * kKVHeads * kDim
                                       : block->data<float>() + (c - capacity) * kKVHeads * kDim;
    result.emplace_back(columns[static_cast<size_t>(c)], memory);
  }
  std::sort(result.begin(), result.end());
  return result;
}

TEST(MaskProof, TheRangeRuleAndTheMasksSayTheSame) {
  const Stream stream(150, 1);
  for (const auto& [capacity, window] : kGeometries) {
    RingKVCache cache(capacity, window, kLayout);
    for (int64_t offset = 0; offset <= 3 * capacity; ++offset) {
      for (int64_t query_len = 1; query_len <= capacity - offset % capacity; ++query_len) {
        const KVBlock block = stream.block(offset, query_len);
        const KVView view = cache.fetch_and_concat(block);
        const ring::Step step = cache.step(query_len);
        const Tensor mask = concat_window_causal_mask(step);
        const auto columns = columns_before_write(offset, query_len, capacity);
        for (int64_t i = 0; i < query_len; ++i) {
          ASSERT_EQ(visited(view, step.rule(), offset + i), shown(mask, i, columns, cache.k_slots(), &block.k()))
              << "capacity " << capacity << " window " << window << " offset " << offset << " Q " << query_len;
        }
      }
      const ring::Step step = cache.step(1);  // the same for the layout after the write of one token
      const KVView view = cache.update_and_fetch(stream.block(offset, 1));
      ASSERT_EQ(
          visited(view, step.rule(), offset),
          shown(ring_window_causal_mask(step), 0, columns_after_write(offset, 1, capacity), cache.k_slots(), nullptr));
    }
  }
}

// Mutations: the check above must see each of these mistakes, or it proves nothing.

/// A mask from a position formula and a visibility formula, either of which may be wrong.
template <class Position, class Sees>
MaskFunction concat_mask_by(Position position, Sees sees) {
  return [=](int64_t offset, int64_t query_len, int64_t capacity, int64_t window) {
    Tensor mask(DType::Bool, {query_len, capacity + query_len});
    auto* entry = mask.data<uint8_t>();
    for (int64_t i = 0; i < query_len; ++i) {
      for (int64_t s = 0; s < capacity; ++s) *entry++ = sees(offset + i, position(s, offset, capacity), window) ? 1 : 0;
      for (int64_t j = 0; j < query_len; ++j) *entry++ = sees(offset + i, offset + j, window) ? 1 : 0;
    }
    return mask;
  };
}

TEST(MaskMutation, EveryWrongFormulaIsSeen) {
  const auto position = [](int64_t s, int64_t end, int64_t c) { return ring::position_in_slot(s, end, c); };
  const auto sees = [](int64_t q, int64_t k, int64_t w) { return k >= 0 && k <= q && q - k < w; };
  ASSERT_EQ(wrong_masks(concat_mask_by(position, sees), columns_before_write), 0) << "the unbroken twin";

  const auto walks_from_offset = [](int64_t s, int64_t end, int64_t c) { return end - (end + c - s) % c; };
  const auto forgets_capacity = [](int64_t s, int64_t end, int64_t c) { return end - 1 - (end - 1 - s) % c; };
  const auto counts_slots = [](int64_t s, int64_t end, int64_t c) { return end / c * c + s; };
  EXPECT_GT(wrong_masks(concat_mask_by(walks_from_offset, sees), columns_before_write), 0);
  EXPECT_GT(wrong_masks(concat_mask_by(forgets_capacity, sees), columns_before_write), 0);
  EXPECT_GT(wrong_masks(concat_mask_by(counts_slots, sees), columns_before_write), 0);

  const auto one_more = [](int64_t q, int64_t k, int64_t w) { return k >= 0 && k <= q && q - k <= w; };
  const auto one_less = [](int64_t q, int64_t k, int64_t w) { return k >= 0 && k <= q && q - k < w - 1; };
  const auto not_itself = [](int64_t q, int64_t k, int64_t w) { return k >= 0 && k < q && q - k < w; };
  const auto sees_empty = [](int64_t q, int64_t k, int64_t w) { return k <= q && q - k < w; };
  const auto not_causal = [](int64_t q, int64_t k, int64_t w) { return k >= 0 && q - k < w; };
  EXPECT_GT(wrong_masks(concat_mask_by(position, one_more), columns_before_write), 0);
  EXPECT_GT(wrong_masks(concat_mask_by(position, one_less), columns_before_write), 0);
  EXPECT_GT(wrong_masks(concat_mask_by(position, not_itself), columns_before_write), 0);
  EXPECT_GT(wrong_masks(concat_mask_by(position, sees_empty), columns_before_write), 0);
  EXPECT_GT(wrong_masks(concat_mask_by(position, not_causal), columns_before_write), 0);
  // The two layouts are not interchangeable.
  EXPECT_GT(wrong_masks(ring_mask, columns_before_write), 0);
}

}  // namespace
}  // namespace slipring::test

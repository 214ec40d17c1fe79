// The two causal window masks of a ring, one for each layout. Kernels never materialise them (they take position
// ranges); they exist for export and for the tests that prove that ranges and masks say the same.
#pragma once

#include <cstdint>

#include <slipring/ring.h>
#include <slipring/tensor.h>

namespace slipring {

/// The layout after the write: entry [i, s] is 1 where the query at position offset + i sees the key in slot s, given
/// what the slots hold once the whole step is written.
/// @return Bool [query_len, capacity]
/// @throws Error{invalid_argument} for a symbolic step, offset < 0, query_len < 1 or a bad geometry
Tensor ring_window_causal_mask(const ring::Step& step);

/// The layout before the write: the slots as the step finds them, then the step's own keys; entry [i, capacity + j]
/// speaks of the step's key j at position offset + j.
/// @return Bool [query_len, capacity + query_len]; errors as above
Tensor concat_window_causal_mask(const ring::Step& step);

/// The same from loose numbers.
Tensor ring_window_causal_mask(int64_t offset, int64_t query_len, int64_t capacity, int64_t window);
Tensor concat_window_causal_mask(int64_t offset, int64_t query_len, int64_t capacity, int64_t window);

}  // namespace slipring

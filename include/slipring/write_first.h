// The guard: writing a sliding ring before reading it is right for one token and wrong in silence for more.
#pragma once

#include <cstdint>

namespace slipring {

/// Called by every step and program on the write-first path before anything is written. Verifying drafts, scoring all
/// logits and chunked prefill have query_len > 1 and must take the concat path. Models without a ring state are not
/// held back. There is no flag that turns this off; docs/ring.md shows what it prevents.
/// @throws Error{write_first_needs_single_token} if has_ring_state and query_len > 1; Error{invalid_argument} if
/// query_len < 1
void check_write_first(int64_t query_len, bool has_ring_state);

}  // namespace slipring

// The cache of a full-attention layer: it keeps every position and grows in pages.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <slipring/layer_cache.h>
#include <slipring/tensor.h>

namespace slipring {

class PagePool;

/// Keys and values of every position of one layer of one sequence, in pages of kPagePositions positions. A new page is
/// allocated when the last one is full: nothing held is ever copied, and nothing is allocated for a maximum context.
/// Being written first is harmless here, whatever the query length: nothing is evicted.
class FullKVCache final : public LayerCache {
 public:
  static constexpr int64_t kPagePositions = 256;

  /// @param pool  where the pages come from, shared by the layers of a sequence; null: each by itself
  /// @throws Error{invalid_argument, dtype_mismatch}
  explicit FullKVCache(KVLayout layout, std::shared_ptr<PagePool> pool = nullptr);

  bool is_ring() const noexcept override { return false; }
  int64_t first_held() const noexcept override { return 0; }
  int64_t room_before_wrap() const noexcept override;
  int64_t bytes_held() const noexcept override;
  KVView held_after(int64_t count) const override;
  void reserve(int64_t count) override;
  using LayerCache::update;
  /// @throws also Error{out_of_memory}; the cache is then as it was
  void update(const KVBlock& block, int64_t first, int64_t count) override;
  /// Any position up to offset().
  bool can_resume_at(int64_t position) const noexcept override { return position >= 0 && position <= offset_; }
  /// Pages that are no longer needed are freed.
  void truncate(int64_t position) override;
  void restore(int64_t offset, const KVBlock& held) override;

 private:
  struct Page {
    Tensor k;  ///< [kPagePositions, n_kv_heads, head_dim]
    Tensor v;
  };
  /// Allocates pages until `positions` fit. @throws Error{out_of_memory}
  void allocate(std::vector<Page>& pages, int64_t positions) const;
  /// Positions first ... first + count - 1 of the block.
  static void write(std::vector<Page>& pages, int64_t position, const KVBlock& block, int64_t first, int64_t count,
                    const KVLayout& layout) noexcept;

  std::shared_ptr<PagePool> pool_;
  std::vector<Page> pages_;
};

}  // namespace slipring

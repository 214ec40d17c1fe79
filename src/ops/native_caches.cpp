// NativeOps where it meets the caches: the blocks of a step, reads and writes of every layer, and attention over them.

#include "ops/native_state.h"

namespace slipring {

void NativeOps::reserve(size_t index, int64_t count) {
  for (size_t layer = 0; layer < pending_.size(); ++layer) {
    if (pending_[layer].update && count > 0) input_.sequences[index].caches[layer]->reserve(count);
  }
}

void NativeOps::commit(size_t index, int64_t count) {
  // update_and_fetch() has written already; those layers are not marked.
  for (size_t layer = 0; layer < pending_.size(); ++layer) {
    const PendingLayer& pending = pending_[layer];
    if (!pending.update || count == 0) continue;
    input_.sequences[index].caches[layer]->commit(pending.blocks[index], count);
  }
}

void NativeOps::take_back(size_t index) noexcept {
  if (index >= input_.sequences.size()) return;  // the step has not begun
  for (const Overwritten& slot : overwritten_) {
    if (slot.sequence == index) slot.cache->undo_update(saved_.data() + slot.saved_at);
  }
  const StepSequence& sequence = input_.sequences[index];
  for (const auto& cache : sequence.caches) {
    if (!cache->is_ring() && cache->can_resume_at(sequence.offset)) cache->truncate(sequence.offset);
  }
}

NativeOps::PendingLayer& NativeOps::round(int layer, const Value& k, const Value& v) {
  const auto index = static_cast<size_t>(layer);
  if (pending_.size() <= index) pending_.resize(index + 1);
  PendingLayer& pending = pending_[index];
  if (!pending.blocks.empty()) return pending;  // fetch_and_concat() made them, update() asks again
  expect_same("keys and values", k, v);
  int64_t row = 0;
  for (const StepSequence& sequence : input_.sequences) {
    const LayerCache& cache = *sequence.caches[index];
    const KVLayout& layout = cache.layout();
    expect_cols("keys", k, layout.elements());
    const Shape shape{sequence.query_len, layout.n_kv_heads, layout.head_dim};
    const auto view = [&](const Value& x) {
      return Tensor::view(DType::F32, shape, slot(x).values + row * layout.elements());
    };
    Tensor keys = view(k);
    Tensor values = view(v);
    if (layout.dtype == DType::F32) {  // a float32 block shares its tensors, and these buffers are scratch
      keys = keys.clone();
      values = values.clone();
    }
    pending.blocks.push_back(KVBlock::round(keys, values, layout.dtype));
    row += sequence.query_len;
  }
  return pending;
}

template <class Fetch>
KVHandle NativeOps::fetch(int layer, const Value& k, const Value& v, const Fetch& fetch) {
  const PendingLayer& pending = round(layer, k, v);
  std::vector<KVView> views;
  views.reserve(input_.sequences.size());
  for (size_t i = 0; i < input_.sequences.size(); ++i) {
    views.push_back(fetch(*input_.sequences[i].caches[static_cast<size_t>(layer)], pending.blocks[i], i));
  }
  views_.push_back(std::move(views));
  return {static_cast<int32_t>(views_.size() - 1)};
}

KVHandle NativeOps::fetch_and_concat(int layer, const Value& k, const Value& v) {
  return fetch(layer, k, v,
               [](LayerCache& cache, const KVBlock& block, size_t) { return cache.fetch_and_concat(block); });
}

void NativeOps::update(int layer, const Value& k, const Value& v) {
  round(layer, k, v).update = true;
}

KVHandle NativeOps::update_and_fetch(int layer, const Value& k, const Value& v) {
  return fetch(layer, k, v, [this](LayerCache& cache, const KVBlock& block, size_t sequence) {
    if (!cache.is_ring()) return cache.update_and_fetch(block);
    // A later layer may fail yet.
    const size_t at = saved_.size();
    saved_.resize(at + static_cast<size_t>(2 * cache.layout().bytes()));
    cache.save_next_slot(saved_.data() + at);
    overwritten_.push_back({&cache, sequence, at});
    try {
      return cache.update_and_fetch(block);
    } catch (...) {
      overwritten_.pop_back();  // nothing was written
      throw;
    }
  });
}

Value NativeOps::attention(const Value& q, KVHandle kv, const AttentionSpec& spec) {
  const int64_t width = int64_t{spec.n_heads} * spec.head_dim;
  expect_cols("attention queries", q, width);
  Value out = make(slot(q).rows, width);
  const std::vector<KVView>& views = views_[static_cast<size_t>(kv.id)];
  std::vector<AttentionTask> tasks;
  tasks.reserve(views.size());
  PositionRule rule = spec.window > 0 ? PositionRule::window(spec.window) : PositionRule::causal();
  if (spec.both_ways) {
    // Here the window counts distance, on either side: DFlash, docs/speculation.md.
    rule = {.left = spec.window, .right = spec.window};
  }
  int64_t row = 0;
  for (size_t i = 0; i < views.size(); ++i) {
    const StepSequence& sequence = input_.sequences[i];
    tasks.push_back({.q = slot(q).values + row * width,
                     .out = slot(out).out() + row * width,
                     .offset = sequence.offset,
                     .query_len = sequence.query_len,
                     .n_heads = spec.n_heads,
                     .scale = spec.scale,
                     .softcap = spec.softcap,
                     .sinks = spec.sinks.empty() ? nullptr : spec.sinks.data<float>(),
                     .rule = rule,
                     .view = &views[i]});
    row += sequence.query_len;
  }
  slipring::attention(tasks, pool_);
  return out;
}

void NativeOps::tap(int layer, const Value& x) {
  for (const int wanted : input_.taps) {
    if (wanted == layer) taps_.push_back(x);
  }
}

}  // namespace slipring

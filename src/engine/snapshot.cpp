#include <algorithm>
#include <fmt/format.h>

#include <slipring/error.h>
#include <slipring/snapshot.h>

#include "engine/sequence.h"
#include "engine/state_bytes.h"

namespace slipring {
namespace {

[[noreturn]] void refuse(std::string expected, std::string got, std::string advice) {
  throw Error(
      ErrorCode::mismatch,
      {.where = "snapshot", .expected = std::move(expected), .got = std::move(got), .advice = std::move(advice)});
}

std::string describe(LayerKind kind, int64_t window, const KVLayout& layout) {
  return fmt::format("{} layer, window {}, {} KV heads of {} {}", kind == LayerKind::sliding ? "a sliding" : "a full",
                     window, layout.n_kv_heads, layout.head_dim, to_string(layout.dtype));
}

int64_t common(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

int64_t count(const Snapshot::Layer& layer) {
  int64_t positions = 0;
  for (const KVBlock& part : layer.parts) positions += part.query_len();
  return positions;
}

/// All parts as one block, cut to the positions before `end`. @pre at least one such position
KVBlock joined(const Snapshot::Layer& layer, int64_t end) {
  if (layer.parts.size() == 1) return layer.parts.front().slice(0, end - layer.first);
  const Shape shape{end - layer.first, layer.layout.n_kv_heads, layer.layout.head_dim};
  Tensor k(layer.layout.dtype, shape);
  Tensor v(layer.layout.dtype, shape);
  const int64_t row = layer.layout.bytes();
  int64_t done = 0;
  for (const KVBlock& part : layer.parts) {
    const int64_t rows = std::min(part.query_len(), end - layer.first - done);
    std::memcpy(static_cast<std::byte*>(k.raw()) + done * row, part.k().raw(), static_cast<size_t>(rows * row));
    std::memcpy(static_cast<std::byte*>(v.raw()) + done * row, part.v().raw(), static_cast<size_t>(rows * row));
    done += rows;
  }
  return KVBlock::of(k, v);
}

}  // namespace

std::shared_ptr<const Snapshot> Snapshot::take(Session& session, const SamplerState& sampler,
                                               const std::shared_ptr<const Snapshot>& base) {
  return take(session.sequence(), session.model(), session.drafts(), sampler, base);
}

std::shared_ptr<const Snapshot> Snapshot::take(const Sequence& sequence, const Model& model, const Drafts* drafts,
                                               const SamplerState& sampler,
                                               const std::shared_ptr<const Snapshot>& base) {
  std::shared_ptr<Snapshot> snapshot(new Snapshot);
  snapshot->identity_ = model.identity();
  snapshot->sampler_ = sampler;
  snapshot->tokens_ = sequence.tokens;
  if (drafts != nullptr) snapshot->drafts_state_ = drafts->save();
  const int64_t shared = base && base->identity_ == snapshot->identity_ ? common(sequence.tokens, base->tokens_) : 0;
  for (size_t i = 0; i < sequence.caches.size(); ++i) {
    const LayerCache& cache = *sequence.caches[i];
    const LayerSpec& spec = model.spec().layers[i];
    snapshot->kv_dtype_ = cache.layout().dtype;
    Layer layer{.kind = spec.kind, .window = spec.window, .layout = cache.layout(), .first = 0, .parts = {}};
    layer.first = cache.first_held();
    int64_t copied = layer.first;
    if (!cache.is_ring() && shared > 0 && base->layers_[i].layout == layer.layout) {
      for (const KVBlock& part : base->layers_[i].parts) {
        if (copied + part.query_len() > shared) break;
        layer.parts.push_back(part);
        copied += part.query_len();
      }
    }
    if (copied < cache.offset()) layer.parts.push_back(copy_positions(cache, copied));
    snapshot->layers_.push_back(std::move(layer));
  }
  return snapshot;
}

bool Snapshot::can_resume_at(int64_t length) const noexcept {
  if (length < 0 || length > this->length()) return false;
  return std::all_of(layers_.begin(), layers_.end(), [length](const Layer& layer) {
    const int64_t needed = layer.kind == LayerKind::sliding ? std::max<int64_t>(0, length - layer.window + 1) : 0;
    return needed >= layer.first || needed == length;
  });
}

void Snapshot::check_fits(const Model& model, int64_t context, DType kv_dtype, int64_t length) const {
  if (identity_ != model.identity()) {
    refuse(fmt::format("the state of model {:016x}, {}", model.identity(), model.path().string()),
           fmt::format("that of model {:016x}", identity_), "restore it with the model that it was taken from");
  }
  if (kv_dtype_ != kv_dtype) {
    refuse(fmt::format("keys and values in {}", to_string(kv_dtype)), std::string(to_string(kv_dtype_)),
           "give the session the KV type of the snapshot");
  }
  const std::vector<LayerSpec>& specs = model.spec().layers;
  if (specs.size() != layers_.size()) {
    refuse(fmt::format("{} layers", specs.size()), std::to_string(layers_.size()), {});
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    const Layer& layer = layers_[i];
    const KVLayout layout{.n_kv_heads = specs[i].n_kv_heads, .head_dim = specs[i].head_dim, .dtype = kv_dtype};
    if (layer.kind != specs[i].kind || layer.window != specs[i].window || layer.layout != layout) {
      refuse(fmt::format("layer {} to be {}", i, describe(specs[i].kind, specs[i].window, layout)),
             describe(layer.kind, layer.window, layer.layout), {});
    }
    const int64_t needed =
        layer.kind == LayerKind::sliding ? std::max<int64_t>(0, this->length() - layer.window + 1) : 0;
    if (layer.first < 0 || layer.first > needed || layer.first + count(layer) != this->length()) {
      refuse(fmt::format("positions {} to {} of layer {}", needed, this->length() - 1, i),
             fmt::format("{} positions from {}", count(layer), layer.first), {});
    }
  }
  for (const TokenId token : tokens_) {
    if (token >= 0 && token < model.spec().vocab_size) continue;
    refuse(fmt::format("token ids from 0 to {}", model.spec().vocab_size - 1), std::to_string(token), {});
  }
  if (length > context) {
    throw Error(ErrorCode::context_full, {.where = "snapshot",
                                          .expected = fmt::format("at most the context's {} tokens", context),
                                          .got = fmt::format("{} tokens", length),
                                          .advice = "restore it into a session with a larger context"});
  }
  if (!can_resume_at(length)) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "snapshot",
                 .expected = fmt::format("{} tokens, or a length whose window the rings still hold", this->length()),
                 .got = fmt::format("length {}", length),
                 .advice = {}});
  }
}

Sequence Snapshot::sequence(const Model& model, int64_t context, DType kv_dtype, int64_t length) const {
  if (length < 0) length = this->length();
  check_fits(model, context, kv_dtype, length);
  Sequence sequence = make_sequence(model.spec().layers, kv_dtype);
  sequence.tokens.assign(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(length));
  for (size_t i = 0; i < layers_.size() && length > 0; ++i) {
    LayerCache& cache = *sequence.caches[i];
    if (cache.is_ring()) {
      // As it was, then back: a ring that goes back knows which slots hold nothing any more.
      cache.restore(this->length(), joined(layers_[i], this->length()));
      cache.truncate(length);
    } else {
      cache.restore(length, joined(layers_[i], length));
    }
  }
  return sequence;
}

void Snapshot::restore(Session& session, int64_t length) const {
  if (length < 0) length = this->length();
  Sequence restored = sequence(session.model(), session.context(), session.options().kv_dtype, length);
  if (Drafts* drafts = session.drafts()) {
    drafts->restore(this->length(), drafts_state_);
    if (length < this->length() && !drafts->truncate(length)) drafts->restore(length, {});
  }
  session.sequence() = std::move(restored);
}

int64_t Snapshot::bytes() const noexcept {
  auto total = static_cast<int64_t>(tokens_.size() * sizeof(TokenId) + drafts_state_.size());
  for (const Layer& layer : layers_) total += count(layer) * layer.layout.bytes() * 2;
  return total;
}

}  // namespace slipring

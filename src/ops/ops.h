// What a model's forward pass is written against. One text of the model runs eagerly (NativeOps) and is traced
// (TraceOps).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "ops/weights.h"

namespace slipring {

class Ops;

/// A handle to one result, [T, features] float32, where T is the step's rows (query_len in a traced program).
/// Copies refer to the same result; the memory behind it is free again once the last handle is gone.
class Value {
 public:
  Value() = default;
  Value(const Value& other);
  Value(Value&& other) noexcept : ops_(std::exchange(other.ops_, nullptr)), id_(other.id_) {}
  Value& operator=(Value other) noexcept;
  ~Value();

  int32_t id() const noexcept { return id_; }
  explicit operator bool() const noexcept { return ops_ != nullptr; }

 private:
  friend class Ops;
  Value(Ops* ops, int32_t id) : ops_(ops), id_(id) {}  // takes over one reference
  Ops* ops_ = nullptr;
  int32_t id_ = -1;
};

/// Keys and values that attention may read: one view a sequence of the step.
struct KVHandle {
  int32_t id = -1;
};

/// How a step reaches the caches.
enum class StepMode : uint8_t {
  main,    ///< write first, then read: one token a sequence
  prefill  ///< read (concat), then write: any number of tokens
};

/// Threads: an Ops object belongs to one thread at a time. Every op checks its inputs: Error{shape_mismatch} naming the
/// op.
class Ops {
 public:
  virtual ~Ops() = default;

  virtual StepMode mode() const = 0;

  // Inputs of the step.
  virtual Value token_ids() = 0;            ///< [T] ids, good for embedding() only
  virtual bool has_embeddings() const = 0;  ///< true: the caller gives hidden states in place of ids
  virtual Value input_embeddings() = 0;     ///< [T, hidden_size]

  // Compute. A Value passed by value and moved in (its last handle) may be computed in place.
  virtual Value embedding(const Value& ids, const Linear& table) = 0;  ///< rows of the table
  /// x * W^T for several maps of the same x, computed together.
  virtual std::vector<Value> linear(const Value& x, std::span<const Linear* const> maps) = 0;
  std::vector<Value> linear(const Value& x, std::initializer_list<const Linear*> maps) {
    return linear(x, std::span<const Linear* const>(maps.begin(), maps.size()));
  }
  Value linear(const Value& x, const Linear& map) { return std::move(linear(x, {&map}).front()); }
  virtual Value norm(Value x, const Norm& norm) = 0;
  virtual Value rope(Value x, const Rope& rope, int head_dim) = 0;              ///< by each row's position
  virtual Value gated(Activation activation, Value gate, const Value& up) = 0;  ///< activation(gate) * up
  virtual Value sigmoid_gate(Value x, const Value& gate) = 0;                   ///< x * sigmoid(gate)
  virtual Value add(Value a, const Value& b) = 0;
  virtual Value scale(Value x, float factor) = 0;
  virtual Value softcap(Value x, float cap) = 0;                            ///< cap * tanh(x / cap)
  virtual Value columns(const Value& x, int64_t first, int64_t count) = 0;  ///< x[:, first : first + count]
  /// Feed-forward by a mixture of experts. A row's bits depend neither on the other rows nor on which experts they
  /// take.
  virtual Value moe(const Value& x, const Mixture& mixture) = 0;
  /// The rows whose logits the step's caller asked for: every one, the last of each sequence, or none.
  virtual Value logit_rows(const Value& x) = 0;

  // Caches, by layer number. k and v are [T, n_kv_heads * head_dim]; they are rounded to the cache's dtype before
  // anyone sees them, so reading them now from the step or later from the cache gives the same bits.
  /// The past as it stood before the step, then the step's own keys. Read-only, any T.
  virtual KVHandle fetch_and_concat(int layer, const Value& k, const Value& v) = 0;
  /// Writes the step's keys and values. An eager step carries the write out when it is committed, so that a step that
  /// fails half-way, or a draft that is rejected, has written nothing.
  virtual void update(int layer, const Value& k, const Value& v) = 0;
  /// Writes, then reads. @throws Error{write_first_needs_single_token} for a ring and more than one token a sequence
  virtual KVHandle update_and_fetch(int layer, const Value& k, const Value& v) = 0;
  virtual Value attention(const Value& q, KVHandle kv, const AttentionSpec& spec) = 0;  ///< [T, n_heads * head_dim]

  /// Marks the residual stream after `layer`; kept where the step's caller asked for that layer.
  virtual void tap(int layer, const Value& x) = 0;

 protected:
  friend class Value;
  virtual void retain(int32_t id) noexcept = 0;
  virtual void release(int32_t id) noexcept = 0;
  Value handle(int32_t id) { return Value(this, id); }
};

/// Attention of one layer through its cache, in the way that the step's mode allows: the one place where a model meets
/// the ring. Prefill reads before it writes; main writes first, which is right for one token and refused for more.
Value attend(Ops& ops, int layer, const Value& q, const Value& k, const Value& v, const AttentionSpec& spec);

inline Value::Value(const Value& other) : ops_(other.ops_), id_(other.id_) {
  if (ops_ != nullptr) ops_->retain(id_);
}
inline Value& Value::operator=(Value other) noexcept {
  std::swap(ops_, other.ops_);
  std::swap(id_, other.id_);
  return *this;
}
inline Value::~Value() {
  if (ops_ != nullptr) ops_->release(id_);
}

}  // namespace slipring

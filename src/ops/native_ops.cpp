#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>

#include <slipring/error.h>
#include <slipring/write_first.h>

#include "ops/native_state.h"

namespace slipring {

NativeOps::NativeOps(ThreadPool& pool) : pool_(pool) {}
NativeOps::~NativeOps() {
  end();
}

void NativeOps::begin(const StepInput& input) {
  end();
  int64_t rows = 0;
  for (const StepSequence& sequence : input.sequences) {
    if (input.mode == StepMode::main) {
      for (const auto& cache : sequence.caches) check_write_first(sequence.query_len, cache->is_ring());
    }
    rows += sequence.query_len;
  }
  if (input.embeddings == nullptr && rows != static_cast<int64_t>(input.tokens.size())) {
    throw Error(ErrorCode::invalid_argument, {.where = "step",
                                              .expected = fmt::format("{} tokens, as the sequences say", rows),
                                              .got = fmt::format("{} tokens", input.tokens.size()),
                                              .advice = {}});
  }
  input_ = input;
  total_rows_ = rows;
}

void NativeOps::end() {
  taps_.clear();
  views_.clear();
  pending_.clear();
  overwritten_.clear();
  saved_.clear();
  rope_tables_.clear();
  input_ = {};
  total_rows_ = 0;
}

int64_t NativeOps::scratch_bytes() const noexcept {
  int64_t floats = 0;
  for (const Buffer& buffer : free_buffers_) floats += buffer.capacity;
  for (const auto& slot : slots_) floats += slot->buffer.capacity;
  return floats * static_cast<int64_t>(sizeof(float));
}

// ---- values

void NativeOps::retain(int32_t id) noexcept {
  ++slots_[static_cast<size_t>(id)]->references;
}

void NativeOps::release(int32_t id) noexcept {
  Slot& slot = *slots_[static_cast<size_t>(id)];
  if (--slot.references > 0) return;
  slot.activations.reset();
  // Both vectors have room for every slot (make() reserves it), so nothing here allocates.
  if (slot.buffer.data) free_buffers_.push_back(std::move(slot.buffer));
  slot.buffer = {};
  free_slots_.push_back(id);
}

NativeOps::Slot& NativeOps::slot(const Value& value) const {
  return *slots_[static_cast<size_t>(value.id())];
}

Value NativeOps::make(int64_t rows, int64_t cols) {
  if (free_slots_.empty()) {
    slots_.push_back(std::make_unique<Slot>());
    free_slots_.reserve(slots_.size());
    free_buffers_.reserve(2 * slots_.size());
    free_slots_.push_back(static_cast<int32_t>(slots_.size() - 1));
  }
  const int64_t need = std::max<int64_t>(rows * cols, 16);
  Buffer buffer;
  // The smallest free buffer that fits, the most recent first among equals: it is the one still in the processor's
  // caches.
  auto best = free_buffers_.end();
  for (auto it = free_buffers_.begin(); it != free_buffers_.end(); ++it) {
    if (it->capacity >= need && (best == free_buffers_.end() || it->capacity <= best->capacity)) best = it;
  }
  if (best != free_buffers_.end()) {
    buffer = std::move(*best);
    free_buffers_.erase(best);
  } else {
    // Buffers that are too small for this step would only pile up: let the largest go.
    auto largest = std::max_element(free_buffers_.begin(), free_buffers_.end(),
                                    [](const Buffer& a, const Buffer& b) { return a.capacity < b.capacity; });
    if (largest != free_buffers_.end() && free_buffers_.size() > 8) free_buffers_.erase(largest);
    void* memory = ::operator new(static_cast<size_t>(need) * sizeof(float), kAlignment, std::nothrow);
    if (memory == nullptr) {
      throw Error(ErrorCode::out_of_memory, {.where = "step of " + std::to_string(total_rows_) + " tokens",
                                             .expected = {},
                                             .got = fmt::format("no memory for a buffer of {} x {}", rows, cols),
                                             .advice = "use a smaller chunk"});
    }
    buffer.data.reset(static_cast<float*>(memory));
    buffer.capacity = need;
  }
  const int32_t id = free_slots_.back();
  free_slots_.pop_back();
  Slot& slot = *slots_[static_cast<size_t>(id)];
  slot.buffer = std::move(buffer);
  slot.values = slot.buffer.data.get();
  slot.rows = rows;
  slot.cols = cols;
  slot.references = 1;
  slot.is_ids = false;
  return handle(id);
}

Value NativeOps::reuse(Value x) {
  Slot& source = slot(x);
  if (source.references == 1 && source.buffer.data) {
    source.activations.reset();
    return x;
  }
  return make(source.rows, source.cols);
}

std::span<const float> NativeOps::data(const Value& value) const {
  const Slot& source = slot(value);
  return {source.values, static_cast<size_t>(source.rows * source.cols)};
}
float* NativeOps::out(const Value& value) {
  return slot(value).out();
}
int64_t NativeOps::rows(const Value& value) const {
  return slot(value).rows;
}
int64_t NativeOps::cols(const Value& value) const {
  return slot(value).cols;
}

void NativeOps::expect_cols(const char* op, const Value& x, int64_t cols) const {
  if (slot(x).cols == cols) return;
  throw Error(ErrorCode::shape_mismatch, {.where = op,
                                          .expected = fmt::format("[T, {}]", cols),
                                          .got = fmt::format("[{}, {}]", slot(x).rows, slot(x).cols),
                                          .advice = {}});
}

void NativeOps::expect_same(const char* op, const Value& a, const Value& b) const {
  if (slot(a).rows == slot(b).rows && slot(a).cols == slot(b).cols) return;
  throw Error(ErrorCode::shape_mismatch,
              {.where = op,
               .expected = "two values of one shape",
               .got = fmt::format("[{}, {}] and [{}, {}]", slot(a).rows, slot(a).cols, slot(b).rows, slot(b).cols),
               .advice = {}});
}

// ---- inputs

Value NativeOps::token_ids() {
  Value ids = make(total_rows_, 1);
  slot(ids).is_ids = true;
  return ids;
}

Value NativeOps::input_embeddings() {
  const int64_t cols = input_.embedding_cols;
  Value x = make(total_rows_, cols);
  std::memcpy(slot(x).out(), input_.embeddings, static_cast<size_t>(total_rows_ * cols) * sizeof(float));
  return x;
}

// ---- compute

Value NativeOps::embedding(const Value& ids, const Linear& table) {
  if (!slot(ids).is_ids) {
    throw Error(ErrorCode::internal,
                {.where = "embedding", .expected = "token ids", .got = "a computed value", .advice = {}});
  }
  const PackedMatrix& matrix = table.matrix;
  for (const int32_t id : input_.tokens) {
    if (id < 0 || id >= matrix.rows()) {
      throw Error(ErrorCode::invalid_argument, {.where = "token id",
                                                .expected = fmt::format("0 to {}", matrix.rows() - 1),
                                                .got = std::to_string(id),
                                                .advice = {}});
    }
  }
  Value x = make(total_rows_, matrix.cols());
  float* out = slot(x).out();
  for (int64_t row = 0; row < total_rows_; ++row) {
    matrix.dequantise_row(input_.tokens[static_cast<size_t>(row)], out + row * matrix.cols());
  }
  return x;
}

std::vector<Value> NativeOps::linear(const Value& x, std::span<const Linear* const> maps) {
  std::vector<Value> results;
  std::vector<MatmulOutput> outputs;
  results.reserve(maps.size());
  outputs.reserve(maps.size());
  const int64_t rows = slot(x).rows;
  for (const Linear* map : maps) {
    expect_cols(map->name.c_str(), x, map->in_features());
    results.push_back(make(rows, map->out_features()));
    outputs.push_back({.weight = &map->matrix,
                       .y = slot(results.back()).out(),
                       .bias = map->bias.empty() ? nullptr : map->bias.data<float>(),
                       .fine_activations = map->fine_activations});
  }
  Slot& source = slot(x);
  if (rows == 0) return results;
  if (!source.activations) source.activations.emplace(source.values, source.rows, source.cols);
  matmul(*source.activations, outputs, pool_);
  return results;
}

Value NativeOps::norm(Value x, const Norm& norm) {
  const Slot& source = slot(x);
  if (norm.size < 1 || source.cols % norm.size != 0) expect_cols(norm.name.c_str(), x, norm.size);
  const float* in = source.values;
  const int64_t groups = source.rows * (source.cols / norm.size);
  Value y = reuse(std::move(x));
  const float* weight = norm.weight.empty() ? nullptr : norm.weight.data<float>();
  if (norm.kind == NormKind::rms) {
    rms_norm(in, weight, norm.eps, groups, norm.size, slot(y).out(), pool_);
  } else {
    layer_norm(in, weight, norm.eps, groups, norm.size, slot(y).out(), pool_);
  }
  return y;
}

const NativeOps::RopeTable& NativeOps::rope_table(const Rope& rope) {
  for (const RopeTable& table : rope_tables_) {
    if (table.rope == rope) return table;
  }
  RopeTable table{.rope = rope, .cos = {}, .sin = {}};
  const size_t half = rope.inverse_frequencies.size();
  table.cos.resize(static_cast<size_t>(total_rows_) * half);
  table.sin.resize(table.cos.size());
  size_t at = 0;
  for (const StepSequence& sequence : input_.sequences) {
    for (int64_t i = 0; i < sequence.query_len; ++i) {
      const auto position = static_cast<float>(sequence.offset + i);
      for (const float inverse : rope.inverse_frequencies) {
        // The angle in float32, as models are trained and references compute it; its cosine as exactly as float32 holds
        // it.
        const double angle = position * inverse;
        table.cos[at] = static_cast<float>(std::cos(angle) * rope.magnitude);
        table.sin[at] = static_cast<float>(std::sin(angle) * rope.magnitude);
        ++at;
      }
    }
  }
  return rope_tables_.emplace_back(std::move(table));
}

Value NativeOps::rope(Value x, const Rope& rope, int head_dim) {
  if (slot(x).cols % head_dim != 0 || rope.rotary_dim() > head_dim) expect_cols("rope", x, head_dim);
  const RopeTable& table = rope_table(rope);
  const Slot& source = slot(x);
  const float* in = source.values;
  const int64_t rows = source.rows;
  const int64_t cols = source.cols;
  Value y = reuse(std::move(x));
  float* out = slot(y).out();
  if (out != in) std::memcpy(out, in, static_cast<size_t>(rows * cols) * sizeof(float));
  slipring::rope(out, table.cos.data(), table.sin.data(), rows, static_cast<int>(cols / head_dim), head_dim,
                 rope.rotary_dim(), rope.layout, pool_);
  return y;
}

Value NativeOps::gated(Activation activation, Value gate, const Value& up) {
  expect_same("gated", gate, up);
  const float* in = slot(gate).values;
  const int64_t count = slot(gate).rows * slot(gate).cols;
  Value y = reuse(std::move(gate));
  gated_activation(activation, in, slot(up).values, count, slot(y).out(), pool_);
  return y;
}

Value NativeOps::sigmoid_gate(Value x, const Value& gate) {
  expect_same("sigmoid_gate", x, gate);
  const float* in = slot(x).values;
  const int64_t count = slot(x).rows * slot(x).cols;
  Value y = reuse(std::move(x));
  slipring::sigmoid_gate(in, slot(gate).values, count, slot(y).out(), pool_);
  return y;
}

Value NativeOps::add(Value a, const Value& b) {
  expect_same("add", a, b);
  const float* in = slot(a).values;
  const int64_t count = slot(a).rows * slot(a).cols;
  Value y = reuse(std::move(a));
  slipring::add(in, slot(b).values, count, slot(y).out(), pool_);
  return y;
}

Value NativeOps::scale(Value x, float factor) {
  const float* in = slot(x).values;
  const int64_t count = slot(x).rows * slot(x).cols;
  Value y = reuse(std::move(x));
  slipring::scale(in, factor, count, slot(y).out(), pool_);
  return y;
}

Value NativeOps::softcap(Value x, float cap) {
  const float* in = slot(x).values;
  const int64_t count = slot(x).rows * slot(x).cols;
  Value y = reuse(std::move(x));
  slipring::softcap(in, cap, count, slot(y).out(), pool_);
  return y;
}

Value NativeOps::columns(const Value& x, int64_t first, int64_t count) {
  const Slot& source = slot(x);
  if (first < 0 || count < 1 || first + count > source.cols) expect_cols("columns", x, first + count);
  Value y = make(source.rows, count);
  float* out = slot(y).out();
  for (int64_t row = 0; row < source.rows; ++row) {
    std::memcpy(out + row * count, source.values + row * source.cols + first,
                static_cast<size_t>(count) * sizeof(float));
  }
  return y;
}

Value NativeOps::logit_rows(const Value& x) {
  const Slot& source = slot(x);
  bool all = true;
  int64_t wanted = 0;
  for (const StepSequence& sequence : input_.sequences) {
    const bool every =
        sequence.logits == LogitRows::all || (sequence.logits == LogitRows::last && sequence.query_len == 1);
    all = all && every;
    wanted += sequence.logits == LogitRows::all ? sequence.query_len : sequence.logits == LogitRows::last ? 1 : 0;
  }
  if (all) return x;
  Value y = make(wanted, source.cols);
  float* out = slot(y).out();
  int64_t row = 0;
  for (const StepSequence& sequence : input_.sequences) {
    const int64_t count = sequence.logits == LogitRows::all    ? sequence.query_len
                          : sequence.logits == LogitRows::last ? 1
                                                               : 0;
    const int64_t from = row + sequence.query_len - count;
    std::memcpy(out, source.values + from * source.cols, static_cast<size_t>(count * source.cols) * sizeof(float));
    out += count * source.cols;
    row += sequence.query_len;
  }
  return y;
}

}  // namespace slipring

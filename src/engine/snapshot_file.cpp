#include "engine/snapshot_file.h"

#include <array>
#include <string_view>

#include "engine/state_bytes.h"
#include "formats/mapped_file.h"
#include "formats/output_file.h"

namespace slipring {
namespace {

constexpr std::string_view kMagic = "slipring";
// Bounds that no real model comes near; they keep later arithmetic far from overflow.
constexpr uint32_t kMaxHeads = 65536;
constexpr uint32_t kMaxHeadDim = 65536;

// The numbers that stand for element types in files; DType's own may change.
constexpr std::array kKVTypes{DType::F32, DType::F16, DType::BF16};

uint32_t code_of(DType dtype) {
  for (uint32_t code = 0; code < kKVTypes.size(); ++code) {
    if (kKVTypes[code] == dtype) return code;
  }
  throw Error(ErrorCode::internal,
              {.where = "snapshot", .expected = {}, .got = "a KV type without a code", .advice = {}});
}

/// Writes numbers and bytes, and sums them.
class SummedFile {
 public:
  explicit SummedFile(const std::filesystem::path& path) : file_(path) {}
  void bytes(std::span<const std::byte> bytes) {
    checksum_.add(bytes);
    file_.write(bytes);
  }
  template <class T>
  void number(T value) {
    bytes(std::as_bytes(std::span(&value, 1)));
  }
  void finish() {
    number(checksum_.value());
    file_.commit();
  }

 private:
  OutputFile file_;
  Checksum checksum_;
};

int64_t read_count(ByteCursor& cursor, std::string_view what, uint64_t most) {
  const auto value = cursor.number<uint64_t>(what);
  if (value > most) {
    throw_bad_file(cursor.where(), fmt::format("{} {}", value, what), fmt::format("at most {}", most),
                   "the file is damaged");
  }
  return static_cast<int64_t>(value);
}

uint32_t read_small(ByteCursor& cursor, std::string_view what, uint32_t least, uint32_t most) {
  const auto value = cursor.number<uint32_t>(what);
  if (value < least || value > most) {
    throw_bad_file(cursor.where(), fmt::format("{} {}", what, value), fmt::format("{} to {}", least, most),
                   "the file is damaged");
  }
  return value;
}

/// Checks everything about the bytes that does not need their meaning. @return what lies between header and checksum
std::span<const std::byte> checked_body(std::span<const std::byte> bytes, const std::string& where) {
  ByteCursor cursor(bytes, where);
  if (bytes.size() < kMagic.size() ||
      std::string_view(reinterpret_cast<const char*>(bytes.data()), kMagic.size()) != kMagic) {
    throw_bad_file(where, "another kind of file", "a session saved by slipring, which starts with \"slipring\"");
  }
  cursor.take(kMagic.size(), "magic");
  const auto version = cursor.number<uint32_t>("version");
  if (version != SnapshotFile::kVersion) {
    throw_unsupported(where, fmt::format("version {} of the session format", version),
                      fmt::format("version {}", SnapshotFile::kVersion), "save the session again with this slipring");
  }
  cursor.number<uint32_t>("reserved");
  const auto file_bytes = cursor.number<uint64_t>("file size");
  if (file_bytes != bytes.size() || bytes.size() < SnapshotFile::kHeaderBytes + sizeof(uint64_t)) {
    throw_bad_file(where, fmt::format("{} bytes", bytes.size()), fmt::format("{} as its header says", file_bytes),
                   "the file is cut short or damaged; save the session again");
  }
  Checksum checksum;
  checksum.add(bytes.first(bytes.size() - sizeof(uint64_t)));
  const auto stored = load<uint64_t>(bytes.data() + bytes.size() - sizeof(uint64_t));
  if (checksum.value() != stored) {
    throw_bad_file(where, fmt::format("checksum {:016x}", checksum.value()), fmt::format("{:016x}", stored),
                   "the file is damaged; save the session again");
  }
  return bytes.subspan(SnapshotFile::kHeaderBytes, bytes.size() - SnapshotFile::kHeaderBytes - sizeof(uint64_t));
}

}  // namespace

void Checksum::mix(uint64_t word) noexcept {
  state_ = (state_ ^ word) * 0x9e3779b97f4a7c15ULL;
  state_ ^= state_ >> 29;
}

void Checksum::add(std::span<const std::byte> bytes) noexcept {
  size_t at = 0;
  for (; at < bytes.size() && count_ % 8 != 0; ++at, ++count_) {
    partial_ |= std::to_integer<uint64_t>(bytes[at]) << (8 * (count_ % 8));
    if (count_ % 8 == 7) {
      mix(partial_);
      partial_ = 0;
    }
  }
  for (; bytes.size() - at >= 8; at += 8, count_ += 8) mix(load<uint64_t>(bytes.data() + at));
  for (; at < bytes.size(); ++at, ++count_) partial_ |= std::to_integer<uint64_t>(bytes[at]) << (8 * (count_ % 8));
}

uint64_t Checksum::value() const noexcept {
  Checksum end = *this;
  end.mix(partial_);
  end.mix(count_);
  return end.state_;
}

void SnapshotFile::write(const Snapshot& snapshot, const std::filesystem::path& path) {
  std::vector<std::byte> head;
  ByteAppender out(head);
  out.number(snapshot.identity_);
  out.number(snapshot.sampler_.seed);
  out.number(snapshot.sampler_.draws);
  out.number(code_of(snapshot.kv_dtype_));
  out.number(static_cast<uint32_t>(snapshot.layers_.size()));
  out.number(static_cast<uint64_t>(snapshot.tokens_.size()));
  out.bytes(std::as_bytes(std::span(snapshot.tokens_)));

  constexpr size_t kLayerBytes = 2 * sizeof(uint64_t) + 3 * sizeof(uint32_t);
  uint64_t size = kHeaderBytes + head.size() + sizeof(uint64_t);
  for (const Snapshot::Layer& layer : snapshot.layers_) {
    size += kLayerBytes;
    for (const KVBlock& part : layer.parts) size += static_cast<uint64_t>(part.k().bytes() + part.v().bytes());
  }
  size += sizeof(uint64_t) + snapshot.drafts_state_.size();

  SummedFile file(path);
  file.bytes(std::as_bytes(std::span(kMagic)));
  file.number(kVersion);
  file.number(uint32_t{0});
  file.number(size);
  file.bytes(head);
  for (const Snapshot::Layer& layer : snapshot.layers_) {
    file.number(static_cast<uint32_t>(layer.kind == LayerKind::sliding ? 1 : 0));
    file.number(static_cast<uint32_t>(layer.layout.n_kv_heads));
    file.number(static_cast<uint32_t>(layer.layout.head_dim));
    file.number(static_cast<uint64_t>(layer.window));
    file.number(static_cast<uint64_t>(layer.first));
    for (const KVBlock& part : layer.parts) file.bytes(part.k().span());
    for (const KVBlock& part : layer.parts) file.bytes(part.v().span());
  }
  file.number(static_cast<uint64_t>(snapshot.drafts_state_.size()));
  file.bytes(snapshot.drafts_state_);
  file.finish();
}

std::shared_ptr<const Snapshot> SnapshotFile::read(std::span<const std::byte> bytes, const std::string& where) {
  ByteCursor cursor(checked_body(bytes, where), where);
  std::shared_ptr<Snapshot> snapshot(new Snapshot);
  snapshot->identity_ = cursor.number<uint64_t>("model identity");
  snapshot->sampler_.seed = cursor.number<uint64_t>("seed");
  snapshot->sampler_.draws = cursor.number<uint64_t>("draws");
  snapshot->kv_dtype_ = kKVTypes[read_small(cursor, "KV type", 0, kKVTypes.size() - 1)];
  const uint32_t n_layers = read_small(cursor, "layers", 1, 65536);
  const int64_t length = read_count(cursor, "tokens", cursor.left() / sizeof(TokenId));
  const auto tokens = cursor.take(static_cast<uint64_t>(length) * sizeof(TokenId), "tokens");
  snapshot->tokens_.resize(static_cast<size_t>(length));
  if (length > 0) std::memcpy(snapshot->tokens_.data(), tokens.data(), tokens.size());
  for (uint32_t i = 0; i < n_layers; ++i) {
    Snapshot::Layer layer;
    layer.kind = read_small(cursor, "layer kind", 0, 1) == 1 ? LayerKind::sliding : LayerKind::full;
    layer.layout.n_kv_heads = static_cast<int>(read_small(cursor, "KV heads", 1, kMaxHeads));
    layer.layout.head_dim = static_cast<int>(read_small(cursor, "head size", 1, kMaxHeadDim));
    layer.layout.dtype = snapshot->kv_dtype_;
    layer.window = read_count(cursor, "window", uint64_t{1} << 40);
    layer.first = read_count(cursor, "first position", static_cast<uint64_t>(length));
    if (length > layer.first) layer.parts.push_back(read_positions(cursor, layer.layout, length - layer.first));
    snapshot->layers_.push_back(std::move(layer));
  }
  const int64_t drafts_bytes = read_count(cursor, "bytes of the drafts' state", cursor.left());
  const auto drafts = cursor.take(static_cast<uint64_t>(drafts_bytes), "the drafts' state");
  snapshot->drafts_state_.assign(drafts.begin(), drafts.end());
  if (cursor.left() > 0) {
    throw_bad_file(where, fmt::format("{} bytes too many", cursor.left()), "the end of the file",
                   "the file is damaged");
  }
  return snapshot;
}

void Snapshot::save(const std::filesystem::path& path) const {
  SnapshotFile::write(*this, path);
}

std::shared_ptr<const Snapshot> Snapshot::load(const std::filesystem::path& path) {
  const auto file = MappedFile::open(path);
  file->check_size();
  return SnapshotFile::read(file->bytes(), path.string());
}

}  // namespace slipring

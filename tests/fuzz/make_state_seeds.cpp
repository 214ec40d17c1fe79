// Seeds of what slipring itself writes: saved sessions and programs as text.
#include "make_state_seeds.h"

#include <fstream>
#include <string>
#include <vector>

#include "engine/snapshot_file.h"
#include "engine/state_bytes.h"
#include "formats/safetensors_writer.h"
#include "program_weights.h"

namespace slipring::testing {
namespace {

namespace fs = std::filesystem;

struct LayerSeed {
  bool sliding;
  uint64_t window;
  uint64_t first;
};

// docs/snapshots.md has the layout. One head of two elements a layer.
std::vector<std::byte> saved_session(uint32_t kv_type, uint64_t tokens, const std::vector<LayerSeed>& layers,
                                     size_t drafts_bytes) {
  const size_t element = kv_type == 0 ? 4 : 2;
  std::vector<std::byte> body;
  ByteAppender out(body);
  for (const uint64_t number : {uint64_t{7}, uint64_t{1}, uint64_t{2}}) out.number(number);  // model, seed, draws
  out.number(kv_type);
  out.number(static_cast<uint32_t>(layers.size()));
  out.number(tokens);
  for (uint64_t i = 0; i < tokens; ++i) out.number(static_cast<TokenId>(i));
  for (const LayerSeed& layer : layers) {
    for (const uint32_t number : {uint32_t{layer.sliding}, 1U, 2U}) out.number(number);
    out.number(layer.window);
    out.number(layer.first);
    out.bytes(std::vector<std::byte>((tokens - layer.first) * 2 * 2 * element));
  }
  out.number(static_cast<uint64_t>(drafts_bytes));
  out.bytes(std::vector<std::byte>(drafts_bytes));

  std::vector<std::byte> file;
  ByteAppender whole(file);
  whole.bytes(std::as_bytes(std::span("slipring", 8)));
  whole.number(SnapshotFile::kVersion);
  whole.number(uint32_t{0});
  whole.number(static_cast<uint64_t>(SnapshotFile::kHeaderBytes + body.size() + sizeof(uint64_t)));
  whole.bytes(body);
  Checksum checksum;
  checksum.add(file);
  whole.number(checksum.value());
  return file;
}

}  // namespace

void snapshot_seeds(const fs::path& folder) {
  fs::create_directories(folder);
  const auto write = [&](const char* name, const std::vector<std::byte>& bytes) {
    std::ofstream(folder / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  };
  write("empty", saved_session(1, 0, {{true, 4, 0}}, 0));
  write("wrapped", saved_session(1, 6, {{true, 4, 2}, {false, 0, 0}}, 8));
  write("float32", saved_session(0, 3, {{false, 0, 0}}, 1));
}

void program_seeds(const fs::path& folder) {
  fs::create_directories(folder);
  const auto write = [&](const char* name, const char* text) { std::ofstream(folder / name) << text; };
  write("main", R"(program "main" mode main
const c0 linear "f16" F16 [8, 8] bias
const c1 linear "f32" F32 [8, 8]
const c2 norm "norm" F32 [8]
rope r0 halves magnitude 1 frequencies 1 0.1
state ring.0 layer 0 capacity 4 window 4 heads 2 head_dim 4 F16
%1 = token_ids() : I32 [query_len, 1]
%2 = embedding(%1, c0) : F32 [query_len, 8]
%3 = norm(%2, c2) {kind=rms, size=8, eps=1e-05} : F32 [query_len, 8]
%4 = linear(%3, c1) : F32 [query_len, 8]
%5 = rope(%4, r0) {head_dim=4} : F32 [query_len, 8]
ring.0@1 = write(ring.0@0, %5, %4) {begin=offset % 4} : state F16 [4, 2, 4]
%7 = read(ring.0@1) : kv F16 [4, 2, 4]
%8 = attention(%5, %7) {n_heads=2, scale=0.5, softcap=0, window=4, both_ways=0} : F32 [query_len, 8]
%9 = add(%8, %2) : F32 [query_len, 8]
%10 = logit_rows(%9) {rows=all} : F32 [query_len, 8]
hidden %10
output "logits" %10
)");
  write("prefill", R"(program "prefill" mode prefill
# requires offset % 4 + query_len <= 4
const c0 linear "bf16" BF16 [8, 8]
const c1 linear "q" Q4_0 [8, 64] bias fine
const c2 linear "q8" Q8_0 [8, 64]
const c3 vector "sinks" F32 [2]
rope r0 interleaved magnitude 1.5 frequencies 1
state ring.0 layer 0 capacity 4 window 3 heads 1 head_dim 4 F32
state full.1 layer 1 capacity 0 window 0 heads 1 head_dim 4 BF16
%2 = input_embeddings() {first=0, count=64} : F32 [query_len, 64]
%3 = linear(%2, c1) : F32 [query_len, 8]
%4 = columns(%3) {first=4, count=4} : F32 [query_len, 4]
%5 = concat(ring.0@0, %4, %4) : kv F32 [4 + query_len, 1, 4]
%6 = attention(%3, %5, c3) {n_heads=2, scale=0.5, softcap=30, window=3, both_ways=1} : F32 [query_len, 8]
ring.0@1 = write(ring.0@0, %4, %4) {begin=offset % 4} : state F32 [4, 1, 4]
full.1@1 = write(full.1@0, %4, %4) {begin=offset} : state BF16 [offset + query_len, 1, 4]
%9 = read(full.1@1) : kv BF16 [offset + query_len, 1, 4]
%10 = gated(%6, %3) {activation=silu} : F32 [query_len, 8]
%11 = sigmoid_gate(%10, %3) : F32 [query_len, 8]
%12 = scale(%11) {factor=2} : F32 [query_len, 8]
%13 = softcap(%12) {factor=30} : F32 [query_len, 8]
output "hidden.0" %13
)");
  write("mixture", R"(program "score" mode prefill
const c0 linear "f32" F32 [8, 8]
const c1 linear "router" F32 [2, 8]
const c2 linear "f16" F16 [8, 8] bias
const c3 linear "f16" F16 [8, 8] bias
const c4 linear "f16" F16 [8, 8] bias
const c5 linear "f16" F16 [8, 8] bias
const c6 linear "f16" F16 [8, 8] bias
const c7 linear "f16" F16 [8, 8] bias
state full.0 layer 0 capacity 0 window 0 heads 1 head_dim 4 F16
%1 = token_ids() : I32 [query_len, 1]
%2 = embedding(%1, c0) : F32 [query_len, 8]
%3 = moe(%2, c1) {experts=2, per_token=1, alpha=1.702, limit=7} : F32 [query_len, 8]
output "logits" %3
)");
}

void write_program_weights(const fs::path& path) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  const auto linear = [&](const std::string& name, DType dtype) {
    tensors.emplace_back(name, Tensor(dtype, {8, 8}));
    tensors.emplace_back(name + ".bias", Tensor(DType::F32, {8}));
  };
  linear("f32", DType::F32);
  linear("f16", DType::F16);
  linear("bf16", DType::BF16);
  linear("i64", DType::I64);
  for (const auto& [name, bytes] : {std::pair{"q", 16}, std::pair{"q8", 32}}) {
    tensors.emplace_back(std::string(name) + ".blocks", Tensor(DType::U8, {8, 2, bytes}));
    tensors.emplace_back(std::string(name) + ".d", Tensor(DType::F16, {8, 2}));
    tensors.emplace_back(std::string(name) + ".bias", Tensor(DType::F32, {8}));
  }
  tensors.emplace_back("norm", Tensor(DType::F32, {8}));
  tensors.emplace_back("sinks", Tensor(DType::F32, {2}));
  tensors.emplace_back("router", Tensor(DType::F32, {2, 8}));
  tensors.emplace_back("none", Tensor(DType::F32, {0, 8}));
  write_safetensors(path, tensors);
}

}  // namespace slipring::testing

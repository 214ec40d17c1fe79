// Files: what was saved comes back; what is cut, foreign, damaged or hostile is refused with a clear error, whatever
// byte it is.
#include "engine/snapshot_file.h"

#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

#include <slipring/error.h>
#include <slipring/snapshot.h>

#include "support.h"

namespace slipring::testing {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

class SnapshotFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = fs::temp_directory_path() / ("slipring-session-" + std::to_string(::getpid()));
    session_.prefill(some_tokens(37));
    Snapshot::take(session_, {.seed = 11, .draws = 22})->save(path_);
    std::ifstream file(path_, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    bytes_.resize(text.size());
    std::memcpy(bytes_.data(), text.data(), text.size());
  }
  void TearDown() override { fs::remove(path_); }

  static void refresh_checksum(Bytes& bytes) {
    Checksum checksum;
    checksum.add(std::span(bytes).first(bytes.size() - 8));
    const uint64_t value = checksum.value();
    std::memcpy(bytes.data() + bytes.size() - 8, &value, 8);
  }
  template <class T>
  Bytes with(size_t at, T value, bool fix_checksum = true) const {
    Bytes changed = bytes_;
    std::memcpy(changed.data() + at, &value, sizeof(value));
    if (fix_checksum) refresh_checksum(changed);
    return changed;
  }
  /// The code and text of reading these bytes and restoring what they say.
  static std::pair<ErrorCode, std::string> refusal(std::span<const std::byte> bytes) {
    try {
      Session session(small_model(), {.kv_dtype = DType::F16, .context = 0, .chunk = 512, .threads = 1});
      SnapshotFile::read(bytes, "file")->restore(session);
    } catch (const Error& error) {
      return {error.code(), error.what()};
    }
    return {ErrorCode::internal, "restored"};
  }

  fs::path path_;
  Session session_{small_model(), {.kv_dtype = DType::F16, .context = 0, .chunk = 512, .threads = 1}};
  Bytes bytes_;
};

// Offsets of the fields: docs/snapshots.md.
constexpr size_t kVersionAt = 8;
constexpr size_t kIdentityAt = 24;
constexpr size_t kTypeAt = 48;
constexpr size_t kLayersAt = 52;
constexpr size_t kTokenCountAt = 56;
constexpr size_t kTokensAt = 64;
constexpr size_t kFirstLayerAt = kTokensAt + 37 * 4;  // kind, heads, head size: 4 bytes each; window, first: 8 each

TEST_F(SnapshotFiles, ComeBackWhole) {
  const auto loaded = Snapshot::load(path_);
  EXPECT_EQ(loaded->tokens(), session_.tokens());
  EXPECT_EQ(loaded->sampler().seed, 11U);
  EXPECT_EQ(loaded->sampler().draws, 22U);
  EXPECT_EQ(loaded->model_identity(), small_model()->identity());
  // Another object of the same model, as another process would have.
  Session other(Model::load(data() / "muse-glimmer"), {.kv_dtype = DType::F16, .context = 0, .chunk = 3, .threads = 2});
  loaded->restore(other);
  EXPECT_EQ(cache_bytes(other), cache_bytes(session_));
  const auto tail = some_tokens(40, 8);
  EXPECT_EQ(copy(other.prefill(tail)), copy(session_.prefill(tail)));
  // Saving what was loaded gives the same file.
  loaded->save(path_.string() + "2");
  std::ifstream again(path_.string() + "2", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(again)), {});
  EXPECT_EQ(text.size(), bytes_.size());
  EXPECT_EQ(std::memcmp(text.data(), bytes_.data(), bytes_.size()), 0);
  fs::remove(path_.string() + "2");
}

TEST_F(SnapshotFiles, EverySavedWayOfSharingReadsTheSame) {
  const auto first = Snapshot::take(session_);
  session_.prefill(some_tokens(30, 5));
  Snapshot::take(session_, {}, first)->save(path_);
  Session other(small_model(), {.kv_dtype = DType::F16, .context = 0, .chunk = 512, .threads = 1});
  Snapshot::load(path_)->restore(other);
  EXPECT_EQ(cache_bytes(other), cache_bytes(session_));
}

TEST_F(SnapshotFiles, CutAnywhereIsRefused) {
  for (size_t size = 0; size < bytes_.size(); size += size < 300 ? 1 : 997) {
    const auto [code, text] = refusal(std::span(bytes_).first(size));
    EXPECT_EQ(code, ErrorCode::bad_file) << size << ": " << text;
  }
  const auto [code, text] = refusal(std::span(bytes_).first(bytes_.size() - 1));
  EXPECT_EQ(code, ErrorCode::bad_file) << text;
  EXPECT_NE(text.find(std::to_string(bytes_.size())), std::string::npos) << text;
  Bytes longer = bytes_;
  longer.push_back(std::byte{0});
  EXPECT_EQ(refusal(longer).first, ErrorCode::bad_file);
}

TEST_F(SnapshotFiles, AnyChangedByteIsRefused) {
  for (size_t at = 0; at < bytes_.size(); at += at < 400 ? 1 : 1009) {
    Bytes changed = bytes_;
    changed[at] ^= std::byte{0x20};
    const auto [code, text] = refusal(changed);
    const bool version = at >= kVersionAt && at < kVersionAt + 4;
    EXPECT_EQ(code, version ? ErrorCode::unsupported : ErrorCode::bad_file) << at << ": " << text;
  }
}

TEST_F(SnapshotFiles, CountsOf2To63AreRefusedWithAndWithoutARightChecksum) {
  for (const uint64_t count : {uint64_t{1} << 63, uint64_t{1} << 62, ~uint64_t{0}, uint64_t{0}, uint64_t{36}}) {
    for (const size_t at : {size_t{16}, kTokenCountAt, kFirstLayerAt + 12, kFirstLayerAt + 20}) {
      if (at == kFirstLayerAt + 20 && count == 0) continue;  // would be a ring that holds everything
      for (const bool fixed : {false, true}) {
        const auto [code, text] = refusal(with(at, count, fixed));
        EXPECT_TRUE(code == ErrorCode::bad_file || code == ErrorCode::mismatch) << at << " " << count << ": " << text;
        if (!fixed) {
          EXPECT_EQ(code, ErrorCode::bad_file) << text;
        }
      }
    }
  }
  for (const uint32_t value : {0U, 1U << 31, ~0U, 3U}) {
    for (const size_t at : {kTypeAt, kLayersAt, kFirstLayerAt, kFirstLayerAt + 4, kFirstLayerAt + 8}) {
      if (at == kFirstLayerAt && value == 0) continue;
      const auto [code, text] = refusal(with(at, value));
      EXPECT_TRUE(code == ErrorCode::bad_file || code == ErrorCode::mismatch) << at << " " << value << ": " << text;
    }
  }
}

TEST_F(SnapshotFiles, ForeignFilesModelsAndTokensAreRefused) {
  const auto [code, text] = refusal(with(0, uint32_t{0x46554747}));
  EXPECT_EQ(code, ErrorCode::bad_file);
  EXPECT_NE(text.find("another kind of file"), std::string::npos) << text;
  EXPECT_EQ(refusal(with(kVersionAt, uint32_t{2})).first, ErrorCode::unsupported);
  EXPECT_EQ(refusal(with(kIdentityAt, uint64_t{42})).first, ErrorCode::mismatch);
  for (const int32_t id : {-1, 320, 0x7fffffff}) EXPECT_EQ(refusal(with(kTokensAt, id)).first, ErrorCode::mismatch);
  EXPECT_EQ(refusal(bytes_).second, "restored");
}

TEST_F(SnapshotFiles, ANameThatCannotBeWrittenOrReadIsAnError) {
  EXPECT_THROW(Snapshot::take(session_)->save("/nowhere/at/all"), Error);
  EXPECT_THROW(Snapshot::load("/nowhere/at/all"), Error);
  EXPECT_THROW(Snapshot::load(data()), Error);
}

TEST_F(SnapshotFiles, TheChecksumDoesNotDependOnThePieces) {
  Checksum whole;
  whole.add(bytes_);
  for (const size_t piece : {1, 3, 7, 8, 13, 64}) {
    Checksum pieces;
    for (size_t at = 0; at < bytes_.size(); at += piece) {
      pieces.add(std::span(bytes_).subspan(at, std::min(piece, bytes_.size() - at)));
    }
    EXPECT_EQ(pieces.value(), whole.value()) << piece;
  }
  Checksum shorter;
  shorter.add(std::span(bytes_).first(bytes_.size() - 1));
  EXPECT_NE(shorter.value(), whole.value());
}

TEST_F(SnapshotFiles, ADraftersDamagedPartIsRefused) {
  const auto drafts = [](Session& session) {
    session.attach_drafts(load_dflash_drafts(data() / "muse-glimmer-assistant", small_model(), session.worker()));
  };
  Session speculating(small_model(), {.kv_dtype = DType::F16, .context = 0, .chunk = 512, .threads = 1});
  drafts(speculating);
  speculating.prefill(some_tokens(90));
  const auto state = Snapshot::take(speculating)->drafts_state();
  ASSERT_GT(state.size(), 100U);
  Session other(small_model(), {.kv_dtype = DType::F16, .context = 0, .chunk = 512, .threads = 1});
  drafts(other);
  EXPECT_NO_THROW(other.drafts()->restore(90, state));
  for (size_t size = 1; size < state.size(); size += size < 40 ? 1 : 211) {
    EXPECT_THROW(other.drafts()->restore(90, std::span(state).first(size)), Error) << size;
  }
  EXPECT_THROW(other.drafts()->restore(89, state), Error);
  for (size_t at = 0; at < 24; at += 8) {
    for (const uint64_t value : {uint64_t{1} << 63, ~uint64_t{0}, uint64_t{91}}) {
      Bytes changed = state;
      std::memcpy(changed.data() + at, &value, 8);
      EXPECT_THROW(other.drafts()->restore(90, changed), Error) << at;
    }
  }
  EXPECT_EQ(other.drafts()->save(), state);  // nothing of that changed anything
}

}  // namespace
}  // namespace slipring::testing

// Unit tests of the writers: what is written reads back, and nothing half-written is left.
#include <atomic>
#include <csignal>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <thread>

#include "formats/bus_error.h"
#include "formats/gguf_writer.h"
#include "formats/mapped_file.h"
#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"
#include "formats/test_bytes.h"

namespace slipring {
namespace {

using testing::expect_error;
using testing::TempFolder;

size_t files_in(const TempFolder& folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& item : std::filesystem::directory_iterator(folder.path())) ++count;
  return count;
}

void write_two(TensorWriter& writer) {
  const Tensor a = Tensor::from(std::vector<float>{1, 2, 3}, {3});
  const Tensor b = Tensor::from(std::vector<float>{4, 5, 6, 7}, {2, 2});
  writer.declare("a", DType::F32, a.shape());
  writer.declare("none", DType::F32, {0, 2});
  writer.declare("b", DType::F32, b.shape());
  writer.append("a", a);
  writer.append("none", Tensor(DType::F32, {0, 2}));
  writer.append(b.span().first(5));
  writer.append(b.span().subspan(5));
  writer.finish();
}

TEST(GgufWriter, ReadsBack) {
  const TempFolder folder;
  const auto path = folder.path() / "m.gguf";
  {
    GgufWriter writer(path);
    writer.set_text("general.architecture", "llama");
    writer.set_u32("n", 7);
    writer.set_f32("f", 0.5F);
    writer.set_bool("yes", true);
    writer.set_texts("texts", std::vector<std::string>{"x", "", "y"});
    writer.set_i32s("ints", std::vector<int32_t>{-1, 2});
    writer.set_u32s("counts", std::vector<uint32_t>{3});
    writer.set_f32s("reals", std::vector<float>{0.25F});
    writer.set_bools("flags", std::array{true, false});
    write_two(writer);
  }
  EXPECT_EQ(files_in(folder), 1U);
  const auto file = MappedFile::open(path);
  const GgufHeader header = GgufHeader::parse(file->bytes(), path.string());
  EXPECT_EQ(header.version(), 3U);
  EXPECT_EQ(as_integer(*header.find("n")), 7);
  EXPECT_EQ(as_real(*header.find("f")), 0.5);
  EXPECT_EQ(as_boolean(*header.find("yes")), true);
  EXPECT_EQ(as_texts(*header.find("texts")), (std::vector<std::string_view>{"x", "", "y"}));
  EXPECT_EQ(as_integers(*header.find("ints")), (std::vector<int64_t>{-1, 2}));
  EXPECT_EQ(as_integers(*header.find("counts")), (std::vector<int64_t>{3}));
  EXPECT_EQ(as_reals(*header.find("reals")), (std::vector<double>{0.25}));
  EXPECT_EQ(as_integers(*header.find("flags")), (std::vector<int64_t>{1, 0}));
  const GgufTensor* b = header.find_tensor("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->shape, Shape({2, 2}));
  EXPECT_EQ(reinterpret_cast<const float*>(file->bytes().data() + b->begin)[3], 7.0F);

  // Copying every value gives the same file.
  const auto again = folder.path() / "again.gguf";
  GgufWriter writer(again);
  for (const auto& entry : header.entries()) writer.copy(entry.key, entry.value);
  write_two(writer);
  EXPECT_EQ(MappedFile::open(again)->text(), file->text());
}

TEST(SafetensorsWriter, ReadsBack) {
  const TempFolder folder;
  const auto path = folder.path() / "m.safetensors";
  SafetensorsWriter writer(path, {{"format", "pt"}});
  write_two(writer);
  const auto file = SafetensorsFile::open(path);
  EXPECT_EQ(file->metadata().at("format"), "pt");
  EXPECT_EQ(file->tensor("a").data<float>()[2], 3.0F);
  EXPECT_EQ(file->tensor("b").shape(), Shape({2, 2}));
  EXPECT_EQ(file->tensor("none").elements(), 0);
}

TEST(SafetensorsWriter, AllAtOnce) {
  const TempFolder folder;
  const auto path = folder.path() / "m.safetensors";
  write_safetensors(path, {{"b", Tensor::from(std::vector<float>{1, 2}, {2})}, {"a", Tensor::from({}, {0})}});
  const auto file = SafetensorsFile::open(path);
  EXPECT_EQ(file->entries().size(), 2U);
  EXPECT_EQ(file->tensor("b").data<float>()[1], 2.0F);
}

TEST(TensorWriter, Misuse) {
  const TempFolder folder;
  {
    SafetensorsWriter writer(folder.path() / "x");
    expect_error(ErrorCode::invalid_argument, {"'q'", "Q8_0"}, [&] { writer.declare("q", DType::Q8_0, {32}); });
    writer.declare("a", DType::F32, {2});
    expect_error(ErrorCode::invalid_argument, {"'a'", "twice"}, [&] { writer.declare("a", DType::F32, {2}); });
    const Tensor pair = Tensor::from(std::vector<float>{1, 2}, {2});
    expect_error(ErrorCode::mismatch, {"'b'"}, [&] { writer.append("b", pair); });
    writer.append(pair.span().first(4));
    expect_error(ErrorCode::invalid_argument, {"4 bytes of tensor 'a'", "8 bytes"}, [&] { writer.finish(); });
    writer.append(pair.span().first(4));
    expect_error(ErrorCode::invalid_argument, {"after the last"}, [&] { writer.append(pair.span()); });
    expect_error(ErrorCode::invalid_argument, {"'c'"}, [&] { writer.declare("c", DType::F32, {2}); });
  }
  {
    GgufWriter writer(folder.path() / "y");
    expect_error(ErrorCode::invalid_argument, {"'b'", "BOOL"}, [&] { writer.declare("b", DType::Bool, {2}); });
    expect_error(ErrorCode::invalid_argument, {"'q'", "rows of 33"}, [&] { writer.declare("q", DType::Q8_0, {33}); });
    writer.set_u32("n", 7);
    expect_error(ErrorCode::invalid_argument, {"'n'"}, [&] { writer.set_bool("n", true); });
  }
  {
    SafetensorsWriter writer(folder.path() / "z");
    writer.declare("\xFF", DType::F32, {0});
    expect_error(ErrorCode::invalid_argument, {"UTF-8"}, [&] { writer.finish(); });
  }
  EXPECT_EQ(files_in(folder), 0U);  // none was finished
}

TEST(OutputFile, TargetsThatAreNoFiles) {
  const TempFolder folder;
  expect_error(ErrorCode::io, {"/dev/null"}, [] { OutputFile("/dev/null"); });
  expect_error(ErrorCode::io, {"folder"}, [&] { OutputFile(folder.path()); });
  expect_error(ErrorCode::not_found, {"absent"}, [&] { OutputFile(folder.path() / "absent" / "x"); });
}

TEST(OutputFile, AFailedWriteLeavesTheOldFileAndNothingElse) {
  const TempFolder folder;
  const auto path = folder.write("out", "old");
  // The process's own limit on file sizes stands for a full disk: write() fails after some bytes.
  struct sigaction ignore {};
  struct sigaction old_action {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGXFSZ, &ignore, &old_action);
  rlimit old_limit{};
  ::getrlimit(RLIMIT_FSIZE, &old_limit);
  rlimit limit = old_limit;
  limit.rlim_cur = 100'000;
  ::setrlimit(RLIMIT_FSIZE, &limit);
  expect_error(ErrorCode::io, {path.string(), "cannot write", "left behind"}, [&] {
    OutputFile file(path);
    file.write(std::string(3'000'000, 'x'));
    file.commit();
  });
  expect_error(ErrorCode::io, {path.string(), "cannot write"}, [&] {  // fails when the buffer is flushed
    OutputFile file(path);
    file.write(std::string(200'000, 'x'));
    file.commit();
  });
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  ::sigaction(SIGXFSZ, &old_action, nullptr);
  EXPECT_EQ(files_in(folder), 1U);
  EXPECT_EQ(MappedFile::open(path)->text(), "old");
}

TEST(BusErrorDeathTest, AFileCutWhileItIsReadEndsTheProgramClearly) {
  const TempFolder folder;
  const auto path = folder.write("m", std::string(100'000, 'x'));
  const auto read_what_was_cut = [&] {
    end_clearly_on_bus_error();
    OutputFile half_written(folder.path() / "out");
    const auto file = MappedFile::open(path);
    std::filesystem::resize_file(path, 10);
    const volatile char* last = file->text().data() + 99'999;
    std::exit(*last == 'x' ? 3 : 4);
  };
  EXPECT_EXIT(read_what_was_cut(), ::testing::ExitedWithCode(1), "cut short while it was in use");
  EXPECT_EQ(files_in(folder), 1U);
}

TEST(BusErrorDeathTest, ManyThreadsThatReadWhatWasCutSayItOnce) {
  const TempFolder folder;
  const auto read_what_was_cut = [&] {
    end_clearly_on_bus_error();
    const auto path = folder.write("m", std::string(100'000, 'x'));
    const auto file = MappedFile::open(path);
    std::filesystem::resize_file(path, 10);
    std::atomic<bool> go{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        while (!go) std::this_thread::yield();
        const volatile char* last = file->text().data() + 99'999;
        std::exit(*last == 'x' ? 3 : 4);
      });
    }
    go = true;
    for (auto& thread : threads) thread.join();
  };
  for (int i = 0; i < 20; ++i) EXPECT_EXIT(read_what_was_cut(), ::testing::ExitedWithCode(1), "^slipring:[^\n]*\n$");
}

TEST(TerminationDeathTest, ASignalThatEndsTheProgramLeavesNothingHalfWritten) {
  const TempFolder folder;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const auto end_while_writing = [&] {
      leave_nothing_on_termination();
      OutputFile half_written(folder.path() / "out");
      std::raise(signal);
    };
    EXPECT_EXIT(end_while_writing(), ::testing::KilledBySignal(signal), "");
    EXPECT_EQ(files_in(folder), 0U);
  }
}

TEST(TerminationDeathTest, AnIgnoredSignalStaysIgnored) {
  const auto end_while_writing = [] {
    std::signal(SIGHUP, SIG_IGN);
    leave_nothing_on_termination();
    std::raise(SIGHUP);
    std::exit(3);
  };
  EXPECT_EXIT(end_while_writing(), ::testing::ExitedWithCode(3), "");
}

TEST(OutputFile, RefusesToReplaceTheModelThatIsRead) {
  const TempFolder folder;
  const auto model = folder.write("m.gguf", "x");
  const auto link = folder.path() / "link";
  std::filesystem::create_symlink(model, link);
  EXPECT_THROW(refuse_to_replace(model, model), Error);
  EXPECT_THROW(refuse_to_replace(link, model), Error);
  EXPECT_THROW(refuse_to_replace(folder.path() / "." / "m.gguf", link), Error);
  EXPECT_THROW(refuse_to_replace(model, folder.path()), Error);
  EXPECT_NO_THROW(refuse_to_replace(folder.path() / "new.gguf", model));
  EXPECT_NO_THROW(refuse_to_replace(folder.path() / "new.gguf", folder.path()));
  EXPECT_NO_THROW(refuse_to_replace(folder.write("session", "x"), folder.path()));
}

TEST(OutputFile, AMappedOldFileKeepsItsBytes) {
  const TempFolder folder;
  const auto path = folder.write("out", "old");
  const auto old = MappedFile::open(path);
  OutputFile file(path);
  file.write("new!");
  file.commit();
  EXPECT_EQ(old->text(), "old");
  EXPECT_NO_THROW(old->check_size());
  EXPECT_EQ(MappedFile::open(path)->text(), "new!");
}

}  // namespace
}  // namespace slipring

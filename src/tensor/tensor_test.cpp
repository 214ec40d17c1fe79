#include <gtest/gtest.h>

#include <slipring/error.h>
#include <slipring/tensor.h>

#include "tensor/page_pool.h"
#include "tensor/shared_pages.h"

namespace slipring {
namespace {

TEST(Shape, CountsElementsRowsAndCols) {
  const Shape shape{3, 4, 5};
  EXPECT_EQ(shape.elements(), 60);
  EXPECT_EQ(shape.rows(), 12);
  EXPECT_EQ(shape.cols(), 5);
  EXPECT_EQ(shape.to_string(), "[3, 4, 5]");
  EXPECT_FALSE((Shape{3, 4} == Shape{4, 3}));
}

TEST(Shape, RefusesOverflowAndTooManyDimensions) {
  EXPECT_THROW((Shape{int64_t{1} << 40, int64_t{1} << 40}), Error);
  EXPECT_THROW((Shape{-1}), Error);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1}), Error);
}

TEST(Tensor, CopiesShareStorageAndClonesDoNot) {
  Tensor a = Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2});
  Tensor b = a;
  const Tensor c = a.clone();
  b.data<float>()[3] = 9;
  EXPECT_EQ(a.data<float>()[3], 9);
  EXPECT_EQ(c.data<float>()[3], 4);
}

TEST(SharedPages, TensorsAreZeroedApartAndOutliveTheScope) {
  std::vector<Tensor> tensors;
  {
    const SharedPages scope;
    const SharedPages inner;
    for (const int64_t size : {20000, 100, 5000000, 90000000, 20000}) tensors.emplace_back(DType::U8, Shape{size});
  }
  tensors.emplace_back(DType::U8, Shape{20000});
  for (size_t i = 0; i < tensors.size(); ++i) {
    auto* bytes = tensors[i].data<uint8_t>();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes) % 64, 0U);
    for (int64_t at = 0; at < tensors[i].bytes(); at += 4096) ASSERT_EQ(bytes[at], 0);
    std::fill(bytes, bytes + tensors[i].bytes(), static_cast<uint8_t>(i + 1));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(tensors[i].data<uint8_t>()[0], i + 1);
    EXPECT_EQ(tensors[i].data<uint8_t>()[tensors[i].bytes() - 1], i + 1);
  }
}

TEST(PagePool, HandsOutZeroedPagesAndTakesThemBack) {
  auto pool = PagePool::make();
  const Shape page{1 << 20};
  std::vector<Tensor> tensors;
  for (int i = 0; i < 12; ++i) {
    tensors.push_back(pool->tensor(DType::U8, page));
    std::fill_n(tensors.back().data<uint8_t>(), 1 << 20, static_cast<uint8_t>(i + 1));
  }
  for (int i = 0; i < 12; ++i) ASSERT_EQ(tensors[static_cast<size_t>(i)].data<uint8_t>()[(1 << 20) - 1], i + 1);
  const void* last = tensors.back().raw();
  tensors.pop_back();
  const Tensor again = pool->tensor(DType::U8, page);
  EXPECT_EQ(again.raw(), last);
  for (int i = 0; i < 1 << 20; i += 4096) ASSERT_EQ(again.data<uint8_t>()[i], 0);
  const Tensor other = pool->tensor(DType::U8, {100});  // another size comes from the heap
  pool.reset();
  EXPECT_EQ(tensors.front().data<uint8_t>()[0], 1);
}

TEST(Tensor, QuantisedRowsMustBeWholeBlocks) {
  EXPECT_EQ(Tensor(DType::Q8_0, {2, 64}).bytes(), 2 * 2 * 34);
  try {
    Tensor(DType::Q8_0, {2, 33});
    FAIL() << "a ragged row was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(), "tensor of Q8_0: shape [2, 33], expected rows of a multiple of 32 elements");
  }
}

TEST(Error, IsOneLineWhateverItsPartsHold) {
  const Error error(ErrorCode::bad_file, {.where = "a\nb", .expected = "", .got = "c\rd", .advice = "e"});
  EXPECT_STREQ(error.what(), "a b: c d; e");
}

TEST(DType, NamesAreReadInAnyCase) {
  EXPECT_EQ(dtype_from_name("q4_k"), DType::Q4_K);
  EXPECT_EQ(dtype_from_name("bf16"), DType::BF16);
  EXPECT_EQ(dtype_from_name("q9"), std::nullopt);
}

}  // namespace
}  // namespace slipring

#include <gtest/gtest.h>
#include <limits>
#include <type_traits>

#include <slipring/error.h>
#include <slipring/symint.h>
#include <slipring/tensor.h>

namespace slipring {
namespace {

// What a tensor holds cannot become an index by accident.
static_assert(std::is_convertible_v<int, SymInt> && std::is_convertible_v<int64_t, SymInt>);
static_assert(!std::is_constructible_v<SymInt, Tensor>);
static_assert(!std::is_constructible_v<SymInt, float> && !std::is_constructible_v<SymInt, double>);
static_assert(!std::is_constructible_v<SymInt, bool> && !std::is_constructible_v<SymInt, const int64_t*>);
static_assert(!std::is_constructible_v<SymInt, const char*> && !std::is_constructible_v<SymInt, uint64_t>);

template <class F>
ErrorCode code_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::internal;
}

TEST(SymInt, ConstantsFold) {
  const SymInt x = (SymInt(7) + 5) * 3 - 1;
  EXPECT_TRUE(x.is_constant());
  EXPECT_EQ(x.value(), 35);
  EXPECT_EQ((x / 8).value(), 4);
  EXPECT_EQ((x % 8).value(), 3);
  EXPECT_EQ(min(x, 3).value(), 3);
  EXPECT_EQ(max(x, 3).value(), 35);
}

TEST(SymInt, ExpressionsEvaluateAndPrint) {
  const SymInt offset = SymInt::dimension("offset");
  const SymInt query_len = SymInt::dimension("query_len");
  const SymInt slot = (offset + query_len - 1) % 8;
  EXPECT_FALSE(slot.is_constant());
  EXPECT_EQ(slot.to_string(), "((offset + query_len) - 1) % 8");
  EXPECT_EQ(slot.evaluate({{"offset", 14}, {"query_len", 3}}), 0);
  EXPECT_EQ(min(offset, query_len * 2).to_string(), "min(offset, query_len * 2)");
  EXPECT_EQ(max(offset / 4, query_len).evaluate({{"offset", 40}, {"query_len", 3}}), 10);
}

TEST(SymInt, StructureCanBeWalked) {
  const SymInt slot = SymInt::dimension("offset") % 8;
  ASSERT_EQ(slot.kind(), SymInt::Kind::mod);
  EXPECT_EQ(slot.lhs().kind(), SymInt::Kind::dimension);
  EXPECT_EQ(slot.lhs().name(), "offset");
  EXPECT_EQ(slot.rhs().kind(), SymInt::Kind::constant);
  EXPECT_EQ(slot.rhs().value(), 8);
  EXPECT_TRUE(slot.same_expression(SymInt::dimension("offset") % 8));
  EXPECT_FALSE(slot.same_expression(SymInt::dimension("offset") % 9));
  EXPECT_FALSE(slot.same_expression(SymInt::dimension("seq_len") % 8));
}

TEST(SymInt, NeutralOperandsLeaveNoNode) {
  const SymInt n = SymInt::dimension("n");
  for (const SymInt& same : {n + 0, 0 + n, n - 0, n * 1, 1 * n, n / 1}) {
    EXPECT_TRUE(same.same_expression(n)) << same.to_string();
  }
}

TEST(SymInt, RefusesWhatHasNoOneMeaning) {
  const SymInt n = SymInt::dimension("n");
  EXPECT_EQ(code_of([] { return SymInt(-1) % 8; }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { return SymInt(-1) / 8; }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { return SymInt(1) % 0; }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { return n / 0; }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { return ((n - 5) % 8).evaluate({{"n", 2}}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { return SymInt(std::numeric_limits<int64_t>::max()) + 1; }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { return n.value(); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { return n.evaluate({{"m", 1}}); }), ErrorCode::not_found);
  EXPECT_EQ(code_of([&] { return n.evaluate({{"n", -1}}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { return SymInt::dimension(""); }), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace slipring

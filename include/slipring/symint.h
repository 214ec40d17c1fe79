// SymInt: an integer known now, or an expression over named dimensions that becomes known when a program runs.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

namespace slipring {

/// Values of named dimensions, for SymInt::evaluate(): {{"offset", 40}, {"query_len", 3}}.
using DimensionBindings = std::map<std::string, int64_t, std::less<>>;

/// A constant, or an expression over dimensions such as "offset" and "query_len".
///
/// It is the type of every begin index of a ring write. It is made from integers known to the program and from named
/// dimensions, and from nothing else: there is no constructor from a tensor, a floating-point number or a pointer, so
/// an exported index can be walked back to shape queries and constants only.
///
/// Operations on constants give constants and allocate nothing. Threads: immutable; copies may be used anywhere.
/// All operations throw Error{invalid_argument} when a known result does not fit int64_t.
class SymInt {
 public:
  enum class Kind : uint8_t { constant, dimension, add, sub, mul, floor_div, mod, min, max };

  SymInt() noexcept = default;
  /// Implicit on purpose: `offset + 1` should read like arithmetic. bool is not an integer here.
  template <std::integral T>
  requires(!std::same_as<std::remove_cv_t<T>, bool> && (sizeof(T) < 8 || std::signed_integral<T>)) SymInt(T value)
  noexcept : value_(static_cast<int64_t>(value)) {}

  /// A named, non-negative dimension of the program: the only way in for what is not known yet.
  /// @throws Error{invalid_argument} if `name` is empty
  static SymInt dimension(std::string name);

  Kind kind() const noexcept;
  bool is_constant() const noexcept { return node_ == nullptr; }
  /// The number, for comparisons and loops. @throws Error{invalid_argument} naming the expression if not constant
  int64_t value() const;
  /// Name of a dimension. @pre kind() == dimension
  const std::string& name() const;
  /// Operands of an operation. @pre kind() is neither constant nor dimension
  const SymInt& lhs() const;
  const SymInt& rhs() const;

  /// The number under these bindings. @throws Error{not_found} for a dimension without one, Error{invalid_argument} for
  /// a binding below 0 and where an operation below would throw
  int64_t evaluate(const DimensionBindings& bindings) const;
  /// "((offset + query_len) - 1) % 8"
  std::string to_string() const;
  /// The same expression written the same way; (a + b) and (b + a) differ.
  bool same_expression(const SymInt& other) const noexcept;

  friend SymInt operator+(const SymInt& a, const SymInt& b) { return make(Kind::add, a, b); }
  friend SymInt operator-(const SymInt& a, const SymInt& b) { return make(Kind::sub, a, b); }
  friend SymInt operator*(const SymInt& a, const SymInt& b) { return make(Kind::mul, a, b); }
  /// Floor division and remainder. Both operands are non-negative and the divisor positive, so every runtime's integer
  /// division means the same. @throws Error{invalid_argument} if a known operand breaks that
  friend SymInt operator/(const SymInt& a, const SymInt& b) { return make(Kind::floor_div, a, b); }
  friend SymInt operator%(const SymInt& a, const SymInt& b) { return make(Kind::mod, a, b); }

 private:
  struct Node;
  friend SymInt min(const SymInt& a, const SymInt& b);
  friend SymInt max(const SymInt& a, const SymInt& b);
  static SymInt make(Kind kind, const SymInt& a, const SymInt& b);

  int64_t value_ = 0;
  std::shared_ptr<const Node> node_;  ///< null for a constant
};

SymInt min(const SymInt& a, const SymInt& b);
SymInt max(const SymInt& a, const SymInt& b);

/// "add", "floor_div", ...
std::string_view to_string(SymInt::Kind kind) noexcept;

}  // namespace slipring

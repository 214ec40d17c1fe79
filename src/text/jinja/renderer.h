// Walks a parsed template and writes its text, within limits.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace slipring::jinja {

/// What a template may use up. Going past any of them is Error{invalid_argument}.
struct RenderLimits {
  int64_t steps = 20'000'000;                  ///< nodes evaluated, values compared, and bytes handled in units of 64
  size_t produced_bytes = size_t{512} << 20U;  ///< of all values and names made on the way, together
  size_t output_bytes = size_t{32} << 20U;     ///< of the result, and of any one string
  int call_depth = 60;                         ///< macros calling macros
  int depth = 1000;                            ///< blocks and expressions within each other, across macros
};

// What values take in memory beside their characters and items: about what malloc and the control blocks need.
inline constexpr size_t kStringBytes = 64;
inline constexpr size_t kListBytes = 64;
inline constexpr size_t kDictBytes = 128;
inline constexpr size_t kEntryBytes = 192;  ///< one entry of a dictionary, or one name of a scope
inline constexpr size_t kObjectBytes = 96;

/// Names of one block. Lookups go outwards; assignments stay inside.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::unordered_map<std::string, Value> names;
};

/// One rendering. Not thread-safe; make one for each.
class Renderer {
 public:
  /// @param now  what strftime_now() tells, local time
  /// @param stop  looked at before each step where it is given: true ends the rendering with Error{cancelled}
  Renderer(RenderLimits limits, std::time_t now, const std::atomic<bool>* stop = nullptr);
  ~Renderer();
  Renderer(const Renderer&) = delete;
  Renderer& operator=(const Renderer&) = delete;

  /// @throws Error{invalid_argument} where the template refuses (raise_exception), does what its values do not allow,
  /// or goes past a limit
  std::string render(const Block& block, const Dict& variables);

  // ---- for filters, tests, methods and functions
  Value evaluate(const Expr& expr, const std::shared_ptr<Scope>& scope);
  /// The text of a block in a scope of its own.
  std::string render_text(const Block& block, const std::shared_ptr<Scope>& scope);
  std::string text_of(const Value& value);
  /// A value that was made, with its price. Of a long one the price is paid before it is made, with charge().
  Value make_string(std::string text);
  Value make_list(std::vector<Value> items);
  Value make_tuple(std::vector<Value> items);
  Value make_dict(Dict dict);
  Value make_undefined(std::string_view name);
  /// Puts one more string on a list that is to become a value. @throws before the list is longer than one may be
  void add_string(std::vector<Value>& items, std::string_view text);
  /// Room that is about to be taken, or was: `bytes` at once, and what goes `beside` them, which is only added up.
  void charge(size_t bytes, size_t beside = 0);
  /// A look at `bytes` that takes no room.
  void work(size_t bytes);
  /// The room that the copies of `dict` take which a new one is filled with.
  void charge_entries(const Dict& dict);
  /// Keeps an object that may hold itself, or a long chain of its like, until the end of the rendering empties it.
  void remember(const std::shared_ptr<Object>& object);
  const RenderLimits& limits() const noexcept { return limits_; }
  std::time_t now() const noexcept { return now_; }
  /// Counts a call level for as long as it lives.
  class CallLevel {
   public:
    explicit CallLevel(Renderer& renderer);
    ~CallLevel() { --renderer_.call_depth_; }
    CallLevel(const CallLevel&) = delete;
    CallLevel& operator=(const CallLevel&) = delete;

   private:
    Renderer& renderer_;
  };

 private:
  // Counts a level of the tree walk, which recurses, for as long as it lives.
  class Level {
   public:
    explicit Level(Renderer& renderer);
    ~Level() { --renderer_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Renderer& renderer_;
  };
  enum class Flow : uint8_t { next, leave_loop, next_round };
  using ScopePtr = std::shared_ptr<Scope>;

  Flow run(const Block& block, const ScopePtr& scope, std::string& out);
  Flow run_loop(const Stmt& stmt, const ScopePtr& scope, std::string& out);
  Flow run_statement(const Stmt& stmt, const ScopePtr& scope, std::string& out);
  void write(std::string& out, const std::string& text);
  void assign(const Expr& target, const Value& value, const ScopePtr& scope);
  Value filtered(const Expr* filter, std::string text, const ScopePtr& scope);
  Value lookup(const std::string& name, const ScopePtr& scope);
  void count(size_t steps);
  Value binary(const Expr& expr, const ScopePtr& scope);
  Value comparison(const Expr& expr, const ScopePtr& scope);
  Value slice(const Expr& expr, const ScopePtr& scope);
  Value call(const Expr& expr, const ScopePtr& scope, const Value* caller);
  Arguments arguments(const Expr& expr, const ScopePtr& scope);

  RenderLimits limits_;
  std::time_t now_;
  const std::atomic<bool>* stop_;
  int64_t steps_ = 0;
  size_t produced_ = 0;
  uint32_t levels_searched_ = 0;
  int call_depth_ = 0;
  int depth_ = 0;
  std::vector<std::shared_ptr<Object>> remembered_;  // oldest first
  ScopePtr root_;
};

/// What errors of a rendering name as their place.
inline constexpr const char* kTemplate = "chat template";

/// Error{invalid_argument} in the words of a template.
[[noreturn]] void refuse(const std::string& where, const std::string& expected, const std::string& got);

}  // namespace slipring::jinja

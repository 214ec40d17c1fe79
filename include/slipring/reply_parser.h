// What a model says to itself, to the user and to tools, told apart while it streams.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <slipring/tokenizer.h>

namespace slipring {

/// How a model family frames its replies.
enum class ReplyDialect : uint8_t {
  plain,   ///< everything is for the user
  muse,    ///< Muse Glimmer: "<|start|>assistant to=NAME<|message|>...<|eom|>", tools called in ATEM tags
  harmony  ///< gpt-oss: "<|start|>assistant<|channel|>NAME to=...<|message|>...<|end|>", tools called in JSON
};

/// The dialect that a vocabulary's control tokens are made for.
ReplyDialect reply_dialect(const Tokenizer& tokenizer);
/// Ids that end a whole reply: the tokenizer's, without those that end only one message of it.
std::vector<TokenId> reply_end_ids(const Tokenizer& tokenizer, ReplyDialect dialect);

struct ReplyEvent {
  enum class Kind : uint8_t { content, reasoning, tool_call };
  Kind kind = Kind::content;
  std::string text;       ///< of content or reasoning
  std::string name;       ///< of the tool
  std::string arguments;  ///< of the tool: a JSON object
};

/// Types of the parameters of each tool, as JSON schema names them: {"weather.get": {"city": "string"}}.
using ToolParameterTypes = std::map<std::string, std::map<std::string, std::string>>;
/// From the "tools" of a request. Whatever does not have the expected shape is left out.
ToolParameterTypes tool_parameter_types(std::string_view tools_json);

/// Reads a reply piece by piece. The events do not depend on where the pieces were cut, except that neighbours of a
/// kind may be split. A tool call is reported once it is whole; one that is cut off is not reported. Threads: one at a
/// time.
class ReplyParser {
 public:
  /// @param in_header  the prompt ended after the role, as the families' templates leave it
  explicit ReplyParser(ReplyDialect dialect, ToolParameterTypes types = {}, bool in_header = true);

  /// Text between control tokens.
  std::vector<ReplyEvent> text(std::string_view piece);
  /// A control token, by its spelling.
  std::vector<ReplyEvent> control(std::string_view spelling);
  /// The end: what was held back, if it is for anyone.
  std::vector<ReplyEvent> finish();

  /// The model has begun a turn that is not its own; nothing after it is its reply.
  bool ended() const noexcept { return state_ == State::ended; }
  bool in_reasoning() const noexcept { return state_ == State::body && recipient_ == Recipient::self; }

 private:
  enum class State : uint8_t { header, body, between, ended };
  enum class Recipient : uint8_t { user, self, tool };

  void open_body();
  void close_body(std::vector<ReplyEvent>& events);
  void read_body(std::vector<ReplyEvent>& events, bool end);
  void read_text(std::vector<ReplyEvent>& events, bool end);
  bool read_tags(std::vector<ReplyEvent>& events, bool end);
  bool read_value(bool end);
  void emit(std::vector<ReplyEvent>& events, std::string text) const;
  std::string json_value(const std::string& raw) const;

  ReplyDialect dialect_;
  ToolParameterTypes types_;
  State state_;
  Recipient recipient_ = Recipient::user;
  bool first_header_ = true;
  std::string header_;
  bool channel_ = false;  // whether header_ holds a channel
  std::string held_;      // of a body, not yet read
  bool at_word_ = true;   // what stood in front of held_ was blank, or nothing
  // ATEM
  enum class Tags : uint8_t { outside, calls, invoke, parameter };
  Tags tags_ = Tags::outside;
  std::string tool_;       // recipient of a harmony call, or the name in the tag
  std::string parameter_;  // name
  std::string value_;
  std::string arguments_;  // JSON so far, without the closing brace
};

}  // namespace slipring

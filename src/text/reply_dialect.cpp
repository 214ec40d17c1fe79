// What a vocabulary tells about how its model frames replies.
#include <algorithm>
#include <optional>

#include <slipring/reply_parser.h>

namespace slipring {

ReplyDialect reply_dialect(const Tokenizer& tokenizer) {
  const auto has = [&tokenizer](std::string_view name) {
    const auto id = tokenizer.find(name);
    return id && tokenizer.is_control(*id);
  };
  if (!has("<|start|>") || !has("<|message|>")) return ReplyDialect::plain;
  if (has("<|channel|>") && has("<|end|>")) return ReplyDialect::harmony;
  return has("<|eom|>") && has("<|eot|>") ? ReplyDialect::muse : ReplyDialect::plain;
}

std::vector<TokenId> reply_end_ids(const Tokenizer& tokenizer, ReplyDialect dialect) {
  std::vector<TokenId> ids = tokenizer.end_of_turn();
  // These end a message that another of the same reply may follow.
  const auto goes_on = dialect == ReplyDialect::muse      ? tokenizer.find("<|eom|>")
                       : dialect == ReplyDialect::harmony ? tokenizer.find("<|end|>")
                                                          : std::nullopt;
  if (goes_on && ids.size() > 1) ids.erase(std::remove(ids.begin(), ids.end(), *goes_on), ids.end());
  return ids;
}

}  // namespace slipring

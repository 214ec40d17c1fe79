#include <slipring/tokenizer.h>

#include "formats/model_files.h"
#include "text/bpe_tokenizer.h"
#include "text/vocabulary.h"

namespace slipring {

std::shared_ptr<const Tokenizer> Tokenizer::load(const ModelFiles& files) {
  return std::make_shared<BpeTokenizer>(files.is_gguf() ? read_gguf_vocabulary(files) : read_hf_vocabulary(files));
}

bool Tokenizer::leading_space_is_added(TokenId) const {
  return true;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool show_control) const {
  std::string bytes;
  bool first = drops_leading_space();
  for (const TokenId id : ids) {
    const std::string token = token_bytes(id, show_control);
    const bool drop = first && !is_control(id) && leading_space_is_added(id) && token.starts_with(' ');
    bytes.append(token, drop ? 1 : 0);
    if (!is_control(id)) first = false;
  }
  return bytes;
}

std::vector<TokenId> with_one_bos(const Tokenizer& tokenizer, std::vector<TokenId> ids) {
  const auto bos = tokenizer.bos();
  if (!bos || !tokenizer.add_bos()) return ids;
  size_t present = 0;
  while (present < ids.size() && ids[present] == *bos) ++present;
  if (present == 0) {
    ids.insert(ids.begin(), *bos);
  } else {
    ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(present - 1));
  }
  return ids;
}

}  // namespace slipring

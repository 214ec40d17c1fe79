#include <gtest/gtest.h>

#include <slipring/generate.h>

namespace slipring {
namespace {

// The last text can be held back for a stop string that it might begin, and is handed over after the last token.
TEST(Generate, WhatEndedItStaysWhenItsLastTextIsRefused) {
  const auto model = Model::load("");
  GenerateOptions options;
  options.max_tokens = 6;
  options.ignore_end = true;
  options.sampling.temperature = 0;
  const auto prompt = encode_prompt(model->tokenizer(), "In the beginning");
  Session plain(model, {.context = 64});
  const GenerateResult whole = generate(plain, prompt, options);
  ASSERT_FALSE(whole.text.empty());
  options.stop = {whole.text.substr(whole.text.size() - 1) + "\x01"};
  Session session(model, {.context = 64});
  size_t taken = 0;
  const GenerateResult result = generate(session, prompt, options, [&](std::string_view piece) {
    taken += piece.size();
    return taken < whole.text.size();
  });
  EXPECT_EQ(result.text, whole.text);
  EXPECT_EQ(result.finish, FinishReason::length);
}

}  // namespace
}  // namespace slipring

// Text from a prompt, through the public headers only: generate PROMPT [MODEL]. Without MODEL the embedded one.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <string_view>

#include <slipring/error.h>
#include <slipring/generate.h>
#include <slipring/model.h>
#include <slipring/session.h>

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: %s PROMPT [MODEL]\n", argv[0]);
    return 2;
  }
  try {
    const auto model = slipring::Model::load(argc > 2 ? argv[2] : std::filesystem::path{});
    slipring::Session session(model);

    slipring::GenerateOptions options;
    options.max_tokens = 64;
    options.sampling.temperature = 0;  // always the likeliest token
    const auto prompt = slipring::encode_prompt(model->tokenizer(), argv[1]);
    const auto result = slipring::generate(session, prompt, options, [](std::string_view piece) {
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
      return true;  // false would stop here
    });
    std::fprintf(stderr, "\n%zu tokens after %lld, %lld bytes of keys and values\n", result.tokens.size(),
                 static_cast<long long>(result.prompt_tokens), static_cast<long long>(session.kv_bytes_held()));
  } catch (const slipring::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return slipring::exit_status(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

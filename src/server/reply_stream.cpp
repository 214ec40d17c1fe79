#include "server/reply_stream.h"

#include <random>

namespace slipring::server {

std::string random_id(const char* prefix) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  thread_local std::mt19937_64 generator{std::random_device{}()};
  std::string id = prefix;
  for (int i = 0; i < 24; ++i) id += kLetters[generator() % kLetters.size()];
  return id;
}

ReplyStream::ReplyStream(std::shared_ptr<const Model> model, ReplyHead head, ReplyDialect dialect)
    : model_(std::move(model)), head_(std::move(head)), dialect_(dialect) {}

ReplyStream::~ReplyStream() {
  cancel();
}

void ReplyStream::cancel() noexcept {
  for (Choice& choice : choices_) choice.generation->cancel();
}

void ReplyStream::add(std::shared_ptr<Generation> generation, const ToolParameterTypes& types, bool counts_prompt) {
  if (counts_prompt) usage_.prompt_tokens += generation->prompt_tokens();
  Choice choice;
  choice.counts_prompt = counts_prompt;
  choice.generation = std::move(generation);
  if (dialect_ != ReplyDialect::plain) choice.parser.emplace(dialect_, types);
  choices_.push_back(std::move(choice));
  ++open_;
}

double ReplyStream::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

std::optional<ReplyPiece> ReplyStream::next(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!done()) {
    // One round over all choices without waiting, then a short wait on the next one that is open.
    for (size_t i = 0; i <= choices_.size(); ++i) {
      turn_ = (turn_ + 1) % choices_.size();
      Choice& choice = choices_[turn_];
      if (choice.over) continue;
      const auto wait =
          i < choices_.size() ? std::chrono::milliseconds(0) : std::chrono::milliseconds(open_ > 1 ? 5 : 50);
      const auto event = choice.generation->next(wait);
      if (!event) continue;
      ReplyPiece piece = read(choice, static_cast<int64_t>(turn_), *event);
      if (!piece.empty()) return piece;
      i = 0;
    }
    if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
  }
  return std::nullopt;
}

void ReplyStream::take(Choice& choice, const std::vector<ReplyEvent>& events, ReplyPiece& piece) const {
  for (const ReplyEvent& event : events) {
    switch (event.kind) {
      case ReplyEvent::Kind::content:
        piece.content += event.text;
        break;
      case ReplyEvent::Kind::reasoning:
        piece.reasoning += event.text;
        break;
      case ReplyEvent::Kind::tool_call:
        piece.tool_calls.push_back({choice.tool_calls++, random_id("call_"), event.name, event.arguments});
        break;
    }
  }
}

ReplyPiece ReplyStream::read(Choice& choice, int64_t index, const GenerationEvent& event) {
  ReplyPiece piece;
  piece.choice = index;
  if (event.token) {
    ++usage_.completion_tokens;
    if (choice.parser && choice.parser->in_reasoning()) ++usage_.reasoning_tokens;
    if (first_token_seconds_ < 0) first_token_seconds_ = seconds();
    if (head_.logprobs) {
      const Tokenizer& tokenizer = model_->tokenizer();
      TokenReport report{tokenizer.token_bytes(*event.token, true), event.logprob.logprob, {}};
      for (const TokenLogprob& other : event.alternatives) {
        report.alternatives.push_back({tokenizer.token_bytes(other.id, true), other.logprob});
      }
      piece.tokens.push_back(std::move(report));
    }
  }
  bool over = event.finish.has_value();
  if (choice.parser) {
    take(choice, choice.parser->text(event.text), piece);
    if (!event.control.empty()) take(choice, choice.parser->control(event.control), piece);
    if (over) take(choice, choice.parser->finish(), piece);
    if (!over && choice.parser->ended()) {
      // The model went on with someone else's turn: its reply is complete.
      choice.generation->cancel();
      over = true;
    }
  } else {
    piece.content = event.text;
  }
  if (!over) return piece;
  choice.over = true;
  --open_;
  if (choice.counts_prompt) usage_.cached_tokens += choice.generation->reused_tokens();
  const auto reason = event.finish.value_or(FinishReason::end_of_turn);
  if (reason == FinishReason::length || reason == FinishReason::cancelled) {
    piece.finish = "length";
  } else {
    piece.finish = choice.tool_calls > 0 ? "tool_calls" : "stop";
  }
  return piece;
}

}  // namespace slipring::server

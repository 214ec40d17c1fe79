#include "server/service.h"

#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "server/api_error.h"

namespace slipring::server {
namespace {

using Json = nlohmann::ordered_json;

// A place frees up when a request ends; a guess that no client waits long for.
constexpr const char* kQueueFull = "The queue is full; try again in a second";

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

Service::Service(std::shared_ptr<const Model> model, std::string name, const SchedulerOptions& options,
                 const std::string& chat_template)
    : model_(std::move(model)),
      name_(valid_utf8(name)),  // a file's name may be anything
      created_(std::time(nullptr)),
      dialect_(reply_dialect(model_->tokenizer())),
      scheduler_(model_, options) {
  if (!chat_template.empty()) {
    template_.emplace(chat_template);
    return;
  }
  const auto& source = model_->tokenizer().chat_template();
  try {
    if (source) template_.emplace(*source);
    if (!source)
      template_problem_ = "This model has no chat template; use /v1/completions, or serve with --chat-template";
  } catch (const Error& error) {
    // Completions still work.
    template_problem_ = std::string("This model's chat template cannot be used: ") + error.what();
  }
}

std::unique_ptr<ReplyStream> Service::complete(const CompletionRequest& request) {
  std::vector<std::vector<TokenId>> prompts;
  for (const auto& prompt : request.prompts) {
    if (std::holds_alternative<std::string>(prompt)) {
      prompts.push_back(encode_prompt(model_->tokenizer(), std::get<std::string>(prompt)));
    } else {
      prompts.push_back(std::get<std::vector<TokenId>>(prompt));
    }
    // An empty prompt is BOS alone, however it was spelled.
    if (prompts.back().empty() && model_->tokenizer().bos()) prompts.back().push_back(*model_->tokenizer().bos());
    if (prompts.back().empty()) {
      throw ApiError::bad_request("prompt", "'prompt' is empty, and this model has no BOS token to begin with");
    }
  }
  return start(request, false, prompts, "");
}

std::unique_ptr<ReplyStream> Service::chat(const ChatRequest& request) {
  if (!template_) throw ApiError::bad_request("messages", template_problem_, "no_chat_template");
  const ChatInput input{.messages = request.messages,
                        .tools = request.tools,
                        .variables = request.variables,
                        .add_generation_prompt = true,
                        .now = {},
                        .stop = &stopped_};
  return start(request, true, {template_->encode(input, model_->tokenizer())}, request.tools);
}

std::unique_ptr<ReplyStream> Service::start(const GenerationFields& fields, bool chat,
                                            const std::vector<std::vector<TokenId>>& prompts,
                                            const std::string& tools) {
  const int64_t context = scheduler_.context();
  for (const auto& prompt : prompts) {
    const auto count = static_cast<int64_t>(prompt.size());
    if (count < context) continue;
    throw ApiError::bad_request(chat ? "messages" : "prompt",
                                "This server's context is " + std::to_string(context) + " tokens and the prompt has " +
                                    std::to_string(count) + "; at most " + std::to_string(context - 1) + " fit",
                                "context_length_exceeded");
  }
  for (const auto& [id, bias] : fields.sampling.logit_bias) {
    if (id < model_->spec().vocab_size) continue;
    throw ApiError::bad_request("logit_bias", "'logit_bias' names token " + std::to_string(id) +
                                                  "; the vocabulary ends at " +
                                                  std::to_string(model_->spec().vocab_size - 1));
  }
  ReplyHead head;
  head.chat = chat;
  head.id = random_id(chat ? "chatcmpl-" : "cmpl-");
  head.model = name_;
  head.created = std::time(nullptr);
  head.logprobs = fields.logprobs.has_value();
  head.usage_in_stream = fields.stream && fields.include_usage;
  const ReplyDialect dialect = chat ? dialect_ : ReplyDialect::plain;
  auto stream = std::make_unique<ReplyStream>(model_, head, dialect);
  const ToolParameterTypes types = tool_parameter_types(tools);
  const uint64_t seed = fields.seed ? *fields.seed : std::random_device{}();
  for (const auto& prompt : prompts) {
    for (int64_t choice = 0; choice < fields.n; ++choice) {
      GenerationRequest request;
      request.prompt = prompt;
      request.options.sampling = fields.sampling;
      // Choices of one seed differ, and the first is what the seed alone gives.
      request.options.sampling.seed = seed + 0x9e3779b97f4a7c15U * static_cast<uint64_t>(choice);
      request.options.stop = fields.stop;
      request.options.max_tokens = fields.max_tokens.value_or(-1);
      request.end_ids = reply_end_ids(model_->tokenizer(), dialect);
      request.report_control = dialect != ReplyDialect::plain;
      request.logprobs = fields.logprobs;
      auto generation = scheduler_.submit(std::move(request));
      if (generation == nullptr) throw ApiError(503, "server_busy", kQueueFull, "", "queue_full");
      stream->add(std::move(generation), types, choice == 0);
    }
  }
  return stream;
}

std::string Service::tokenize(const TokenizeRequest& request) const {
  const auto control = request.parse_special ? ControlTokens::parse : ControlTokens::as_text;
  const auto ids = request.add_special ? encode_prompt(model_->tokenizer(), request.content, control)
                                       : model_->tokenizer().encode(request.content, control);
  return dumped({{"tokens", ids}});
}

std::string Service::detokenize(const std::vector<TokenId>& ids) const {
  for (const TokenId id : ids) {
    if (id < model_->tokenizer().size()) continue;
    throw ApiError::bad_request("tokens", "'tokens' holds " + std::to_string(id) + "; the vocabulary ends at " +
                                              std::to_string(model_->tokenizer().size() - 1));
  }
  return dumped({{"content", valid_utf8(model_->tokenizer().decode(ids, true))}});
}

std::string Service::models() const {
  const ModelSpec& spec = model_->spec();
  const Json model = {{"id", name_},
                      {"object", "model"},
                      {"created", created_},
                      {"owned_by", "slipring"},
                      {"meta",
                       {{"family", spec.family},
                        {"context", scheduler_.context()},
                        {"vocabulary", spec.vocab_size},
                        {"weight_bytes", model_->weight_bytes()},
                        {"chat", template_.has_value()}}}};
  return dumped({{"object", "list"}, {"data", Json::array({model})}});
}

std::string Service::health() const {
  const SchedulerView view = scheduler_.view();
  return dumped({{"status", "ok"}, {"running", view.running}, {"queued", view.queued}});
}

std::string Service::rings() const {
  const ModelSpec& spec = model_->spec();
  const SchedulerView view = scheduler_.view();
  Json layers = Json::array();
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerSpec& layer = spec.layers[i];
    const bool sliding = layer.kind == LayerKind::sliding;
    layers.push_back({{"index", i},
                      {"kind", sliding ? "sliding" : "full"},
                      {"window", sliding ? Json(layer.window) : Json(nullptr)},
                      {"capacity", sliding ? Json(layer.window) : Json(nullptr)}});
  }
  const auto sequence_json = [&spec](const SequenceView& sequence) {
    Json caches = Json::array();
    for (size_t i = 0; i < sequence.first_held.size(); ++i) {
      const LayerSpec& layer = spec.layers[i];
      const bool sliding = layer.kind == LayerKind::sliding;
      const int64_t oldest = sliding ? sequence.step_offset - layer.window + 1 : 0;
      // Of the last step: its first query saw the keys from read_first on, its own were written from write_slot on.
      caches.push_back({{"first_held", sequence.first_held[i]},
                        {"next_slot", sliding ? sequence.length % layer.window : sequence.length},
                        {"write_slot", sliding ? sequence.step_offset % layer.window : sequence.step_offset},
                        {"read_first", std::max<int64_t>(0, oldest)}});
    }
    return Json{{"request", sequence.request},
                {"length", sequence.length},
                {"prompt_tokens", sequence.prompt_tokens},
                {"reused_tokens", sequence.reused_tokens},
                {"prefilling", sequence.prefilling},
                {"step", {{"offset", sequence.step_offset}, {"tokens", sequence.step_tokens}}},
                {"draft", sequence.drafting ? Json{{"proposed", sequence.proposed}, {"accepted", sequence.accepted}}
                                            : Json(nullptr)},
                {"kv_bytes", sequence.kv_bytes},
                {"kv_bytes_without_rings", sequence.kv_bytes_without_rings},
                {"layers", std::move(caches)}};
  };
  Json sequences = Json::array();
  for (const SequenceView& sequence : view.sequences) sequences.push_back(sequence_json(sequence));
  return dumped(
      {{"model", name_},
       {"context", scheduler_.context()},
       {"kv_dtype", std::string(to_string(scheduler_.options().session.kv_dtype))},
       {"layers", std::move(layers)},
       {"steps", view.steps},
       {"step", {{"seconds", view.step_seconds}, {"tokens", view.step_tokens}, {"write_first", view.write_first}}},
       {"running", view.running},
       {"queued", view.queued},
       {"prompt_tokens", view.prompt_tokens},
       {"generated_tokens", view.generated_tokens},
       {"kv_bytes", view.kv_bytes},
       {"prefixes",
        {{"snapshots", view.prefixes.snapshots},
         {"bytes", view.prefixes.bytes},
         {"reused_tokens", view.prefixes.reused_tokens}}},
       {"sequences", std::move(sequences)},
       {"last", view.last.request > 0 ? sequence_json(view.last) : Json(nullptr)}});
}

}  // namespace slipring::server

#include <slipring/error.h>
#include <slipring/model.h>

#include "formats/model_files.h"
#include "kernels/thread_pool.h"
#include "models/decoder.h"

namespace slipring {

std::shared_ptr<const Model> Model::load(const std::filesystem::path& path, const ModelOptions& options) {
  const std::filesystem::path chosen = path.empty() ? default_model_path() : path;
  const auto files = ModelFiles::open(chosen);
  ThreadPool pool(options.threads);
  std::shared_ptr<Model> model(new Model);
  model->path_ = chosen;
  model->file_bytes_ = files->file_bytes();
  model->decoder_ = load_decoder(*files, pool, options.context);
  try {
    model->tokenizer_ = Tokenizer::load(*files);
  } catch (const Error& error) {
    // Weights without a vocabulary run on token ids; whoever needs text is told.
    if (error.code() != ErrorCode::not_found) throw;
    model->no_tokenizer_ = error.what();
  }
  model->identity_ = model->decoder_->fingerprint();
  if (model->tokenizer_ && model->tokenizer_->size() > model->spec().vocab_size) {
    throw Error(ErrorCode::bad_file, {.where = chosen.string() + ": vocabulary",
                                      .expected = std::to_string(model->spec().vocab_size) + " tokens at most",
                                      .got = std::to_string(model->tokenizer_->size()) + " tokens",
                                      .advice = "the tokenizer does not belong to these weights"});
  }
  return model;
}

Model::~Model() = default;
const ModelSpec& Model::spec() const noexcept {
  return decoder_->spec();
}
std::shared_ptr<const Tokenizer> Model::shared_tokenizer() const {
  if (tokenizer_) return tokenizer_;
  throw Error(ErrorCode::not_found, {.where = path_.string(),
                                     .expected = "a vocabulary beside the weights",
                                     .got = no_tokenizer_,
                                     .advice = "this model takes token ids only"});
}
const Tokenizer& Model::tokenizer() const {
  return *shared_tokenizer();
}
int64_t Model::weight_bytes() const noexcept {
  return decoder_->weight_bytes();
}

}  // namespace slipring

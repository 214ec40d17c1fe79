// Reads a bundle's programs and weights into a Model.
#include "engine/bundle.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <slipring/error.h>
#include <slipring/model.h>

#include "formats/json_file.h"
#include "formats/mapped_file.h"
#include "formats/model_files.h"
#include "models/config.h"
#include "models/program_decoder.h"
#include "program/parse.h"
#include "program/weights_file.h"

namespace slipring {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

[[noreturn]] void fail(const fs::path& file, std::string expected, std::string got) {
  throw Error(ErrorCode::bad_file, {.where = file.string(),
                                    .expected = std::move(expected),
                                    .got = std::move(got),
                                    .advice = "export the model again"});
}

json read_manifest(const fs::path& folder) {
  const fs::path file = folder / kManifestFile;
  if (!fs::is_regular_file(file)) {
    throw Error(ErrorCode::not_found, {.where = file.string(),
                                       .expected = "the manifest of an exported bundle",
                                       .got = "no such file",
                                       .advice = "write one with slipring export -m MODEL -o DIR"});
  }
  json manifest = read_json_file(file);
  const bool known = manifest.is_object() && manifest.value("format", json()) == kBundleFormat &&
                     manifest.value("version", json()) == kBundleVersion;
  if (!known) fail(file, fmt::format("format {} version {}", kBundleFormat, kBundleVersion), "something else");
  return manifest;
}

int64_t size_of(const json& facts, const char* key, int64_t most, const fs::path& file) {
  const auto found = facts.find(key);
  if (found == facts.end() || !found->is_number_integer()) fail(file, fmt::format("model.{}, a number", key), "none");
  const auto value = found->get<int64_t>();
  if (value < 1 || value > most) fail(file, fmt::format("model.{} from 1 to {}", key, most), std::to_string(value));
  return value;
}

ModelSpec read_spec(const json& manifest, const fs::path& file) {
  const auto found = manifest.find("model");
  if (found == manifest.end() || !found->is_object()) fail(file, "an object \"model\"", "none");
  ModelSpec spec;
  const auto text = [&](const char* key) {
    const auto value = found->find(key);
    return value != found->end() && value->is_string() ? value->get<std::string>() : std::string();
  };
  spec.family = text("family");
  spec.architecture = text("architecture");
  spec.vocab_size = size_of(*found, "vocab_size", kMaxVocabulary, file);
  spec.hidden_size = size_of(*found, "hidden_size", kMaxFeatures, file);
  spec.context_length = size_of(*found, "context_length", kMaxContext, file);
  spec.n_heads = static_cast<int>(size_of(*found, "n_heads", kMaxFeatures, file));
  return spec;
}

Program read_program(const fs::path& folder, const char* name, WeightsFile& weights) {
  const fs::path file = folder / fmt::format("{}.program", name);
  const auto mapped = MappedFile::open(file);
  const auto bytes = mapped->bytes();
  return parse_program({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, weights, file.string());
}

std::shared_ptr<const Tokenizer> read_tokenizer(const fs::path& folder) {
  const fs::path gguf = folder / kTokenizerGguf;
  return Tokenizer::load(*ModelFiles::open(fs::is_regular_file(gguf) ? gguf : folder));
}

}  // namespace

std::shared_ptr<const Model> Model::load_bundle(const fs::path& folder, const ModelOptions& options) {
  const json manifest = read_manifest(folder);
  ModelSpec spec = read_spec(manifest, folder / kManifestFile);
  ThreadPool pool(options.threads);
  WeightsFile weights(folder, pool);
  DecoderPrograms programs{.main = read_program(folder, "main", weights),
                           .prefill = read_program(folder, "score", weights),
                           .embed = std::nullopt};
  if (manifest.value("embeddings", json()) == true) programs.embed = read_program(folder, "embed", weights);
  std::shared_ptr<Model> model(new Model);
  model->path_ = folder;
  model->file_bytes_ = static_cast<int64_t>(fs::file_size(folder / kWeightsFile));
  model->decoder_ = make_program_decoder(std::move(spec), std::move(programs));
  model->identity_ = model->decoder_->fingerprint();
  if (manifest.value("tokenizer", json()).is_object()) {
    model->tokenizer_ = read_tokenizer(folder);
    if (model->tokenizer_->size() > model->spec().vocab_size) {
      fail(folder, fmt::format("{} tokens at most", model->spec().vocab_size),
           fmt::format("a tokenizer of {}", model->tokenizer_->size()));
    }
  } else {
    model->no_tokenizer_ = "a bundle of a model without one";
  }
  return model;
}

}  // namespace slipring

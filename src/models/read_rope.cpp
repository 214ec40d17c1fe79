// Position embeddings as model files describe them.
//
// References: Hugging Face transformers, modeling_rope_utils.py, for the formulas and the names in config.json;
// llama.cpp's converter for the names in GGUF files.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numbers>

#include <slipring/error.h>

#include "models/config.h"

namespace slipring {
namespace {

// The parameters of one section, under the names of either format.
class Section {
 private:
  static std::string in(std::string_view place, std::string_view key) {
    return std::string(place) + "/" + std::string(key);
  }
  // Where config.json may hold a parameter: the section, what all layers share, the older name of that.
  template <class Find>
  auto first(const Find& find) const {
    auto value = find(name_);
    for (const std::string_view place : {"rope_parameters", "rope_scaling"}) {
      if (!value && !files_.is_gguf()) value = find(place);
    }
    return value;
  }

 public:
  Section(const ModelFiles& files, std::string_view name) : files_(files), name_(name) {}

  std::optional<double> find(std::string_view hf, std::string_view gguf) const {
    return first([&](std::string_view place) { return files_.real({in(place, hf), gguf}); });
  }
  double real(std::string_view hf, std::string_view gguf, double otherwise) const {
    return find(hf, gguf).value_or(otherwise);
  }
  double positive(std::string_view hf, std::string_view gguf, double otherwise) const {
    const double value = real(hf, gguf, otherwise);
    if (!(static_cast<float>(value) > 0) || !std::isfinite(static_cast<float>(value))) {
      bad_key(files_, files_.is_gguf() ? gguf : hf, "a number above 0", fmt::format("{}", value));
    }
    return value;
  }
  bool boolean(std::string_view hf, bool otherwise) const {
    if (files_.is_gguf()) return otherwise;
    return first([&](std::string_view place) { return files_.boolean({in(place, hf), {}}); }).value_or(otherwise);
  }
  std::vector<double> reals(std::string_view hf) const {
    return first([&](std::string_view place) {
             return files_.reals({in(place, hf), {}});
           })
        .value_or(std::vector<double>());
  }
  std::optional<std::string> text(std::string_view hf, std::string_view gguf) const {
    return first([&](std::string_view place) { return files_.text({in(place, hf), gguf}); });
  }
  const ModelFiles& files() const noexcept { return files_; }

 private:
  const ModelFiles& files_;
  std::string name_;
};

// Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, the band between blended.
void stretch_llama3(Rope& rope, const Section& section) {
  const double factor = section.positive("factor", {}, 8.0);
  const double low = section.positive("low_freq_factor", {}, 1.0);
  const double high = section.positive("high_freq_factor", {}, 4.0);
  const double original_context = section.positive("original_max_position_embeddings", {}, 8192.0);
  for (float& inverse : rope.inverse_frequencies) {
    const double wavelength = 2 * std::numbers::pi / inverse;
    const double stretched = inverse / factor;
    if (wavelength > original_context / low) {
      inverse = static_cast<float>(stretched);
    } else if (wavelength >= original_context / high) {
      const double smooth = (original_context / wavelength - low) / (high - low);
      inverse = static_cast<float>((1 - smooth) * stretched + smooth * inverse);
    }
  }
}

constexpr Names kShortFactors{"short_factor", "rope_factors_short.weight"};
constexpr Names kLongFactors{"long_factor", "rope_factors_long.weight"};

// The magnitude that YaRN's paper recommends for a stretch by `factor`.
double yarn_magnitude(double factor, double weight = 1.0) {
  return factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

// Peng et al., YaRN (arXiv 2309.00071): dimensions that turn often over the original context keep their frequency,
// those that turn seldom are stretched by `factor`, with a ramp between.
void stretch_yarn(Rope& rope, const Section& section, double theta, bool truncates) {
  const double factor = section.positive("factor", "rope.scaling.factor", 1.0);
  const double context =
      section.positive("original_max_position_embeddings", "rope.scaling.original_context_length", 4096.0);
  if (!(theta > 1)) bad_key(section.files(), "rope theta", "more than 1", std::to_string(theta));
  const double dim = rope.rotary_dim();
  const auto dimension_of = [&](double turns) {
    return dim * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double low = dimension_of(section.positive("beta_fast", "rope.scaling.yarn_beta_fast", 32.0));
  double high = dimension_of(section.positive("beta_slow", "rope.scaling.yarn_beta_slow", 1.0));
  if (section.boolean("truncate", truncates)) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < rope.inverse_frequencies.size(); ++i) {
    const double stretch = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double plain = rope.inverse_frequencies[i];
    rope.inverse_frequencies[i] = static_cast<float>(plain / factor * stretch + plain * (1 - stretch));
  }
  auto magnitude = section.find("attention_factor", "rope.scaling.yarn_attn_factor");
  if (!magnitude) {
    const double over = section.real("mscale", {}, 0.0);
    const double under = section.real("mscale_all_dim", {}, 0.0);
    magnitude =
        over != 0 && under != 0 ? yarn_magnitude(factor, over) / yarn_magnitude(factor, under) : yarn_magnitude(factor);
  }
  if (!(static_cast<float>(*magnitude) > 0) || !std::isfinite(static_cast<float>(*magnitude))) {
    bad_key(section.files(), section.files().is_gguf() ? "rope.scaling.yarn_attn_factor" : "attention_factor",
            "a number above 0", fmt::format("{}", *magnitude));
  }
  rope.magnitude = static_cast<float>(*magnitude);
}

// Ding et al., LongRoPE (arXiv 2402.13753): one factor a dimension, from one set for texts within the original context
// and from another for longer ones.
void stretch_longrope(Rope& rope, const Section& section, double original_context, bool long_factors) {
  const ModelFiles& files = section.files();
  const Names& name = long_factors ? kLongFactors : kShortFactors;
  std::vector<double> factors;
  if (files.is_gguf()) {
    const Tensor stored = files.find_tensor(name);
    if (!stored.empty() && stored.dtype() == DType::F32) {
      factors.assign(stored.data<float>(), stored.data<float>() + stored.elements());
    }
  } else {
    factors = section.reals(name.hf);
  }
  const size_t dims = rope.inverse_frequencies.size();
  const bool sound = std::all_of(factors.begin(), factors.end(), [](double f) { return f > 0 && std::isfinite(f); });
  if (factors.size() != dims || !sound) {
    bad_key(files, files.is_gguf() ? name.gguf : name.hf, fmt::format("{} numbers above 0", dims),
            fmt::format("{} numbers", factors.size()));
  }
  for (size_t i = 0; i < dims; ++i) {
    rope.inverse_frequencies[i] = static_cast<float>(rope.inverse_frequencies[i] / factors[i]);
  }
  const auto context =
      static_cast<double>(files.require_integer({"max_position_embeddings", "context_length"}, 1, kMaxContext));
  const double factor = section.positive("factor", {}, context / original_context);
  const double recommended = factor <= 1.0 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original_context));
  rope.magnitude = static_cast<float>(section.positive("attention_factor", "rope.scaling.attn_factor", recommended));
}

}  // namespace

double read_theta(const ModelFiles& files, std::string_view section, double fallback, std::string_view older_key,
                  std::string_view gguf_key) {
  const std::string own = std::string(section) + "/rope_theta";
  auto theta = files.real({own, gguf_key});
  if (!theta && !files.is_gguf()) theta = files.real({older_key, {}});
  if (!theta) theta = Section(files, section).find("rope_theta", gguf_key);
  const double value = theta.value_or(fallback);
  if (!(value > 0) || !std::isfinite(value)) bad_key(files, "rope theta", "a number above 0", std::to_string(value));
  return value;
}

std::string rope_type(const ModelFiles& files, std::string_view section_name) {
  // Phi-3's GGUF files tell by the tensors, and older ones by them alone.
  if (files.is_gguf() && !files.find_tensor(kShortFactors).empty()) return "longrope";
  const Section section(files, section_name);
  auto type = section.text("rope_type", "rope.scaling.type");
  if (!type && !files.is_gguf()) type = section.text("type", {});
  if (type == "none") return "default";
  if (type == "su") return "longrope";  // the name that the first Phi-3 files have
  return type.value_or("default");
}

int64_t longrope_original_context(const ModelFiles& files, std::string_view section_name) {
  auto context =
      Section(files, section_name).find("original_max_position_embeddings", "rope.scaling.original_context_length");
  if (!context && !files.is_gguf()) context = files.real({"original_max_position_embeddings", {}});
  const double value = context.value_or(0.0);
  if (!(value >= 2 && value <= static_cast<double>(kMaxContext))) {
    bad_key(files, files.is_gguf() ? "rope.scaling.original_context_length" : "original_max_position_embeddings",
            fmt::format("2 to {}", kMaxContext), context ? std::to_string(value) : "nothing");
  }
  return static_cast<int64_t>(value);
}

Rope read_rope(const WeightLoader& load, double theta, int rotary_dim, std::string_view section_name, RopeLayout layout,
               const RopeChoices& choices) {
  const ModelFiles& files = load.files();
  const Section section(files, section_name);
  const std::string kind = rope_type(files, section_name);
  const double factor = kind == "linear" ? section.positive("factor", "rope.scaling.factor", 1.0) : 1.0;
  Rope rope = plain_rope(theta, rotary_dim, factor, layout);
  if (kind == "llama3") {
    if (!files.is_gguf()) stretch_llama3(rope, section);  // GGUF holds the outcome, as rope_freqs below
  } else if (kind == "yarn") {
    stretch_yarn(rope, section, theta, choices.yarn_truncates);
  } else if (kind == "longrope") {
    stretch_longrope(rope, section, static_cast<double>(longrope_original_context(files, section_name)),
                     choices.long_factors);
  } else if (kind != "default" && kind != "linear") {
    throw Error(ErrorCode::unsupported, {.where = files.path().string() + ": rope type",
                                         .expected = "default, linear, llama3, yarn or longrope",
                                         .got = "\"" + kind + "\"",
                                         .advice = {}});
  }
  const Names divisors_name{{}, "rope_freqs.weight"};
  if (const Tensor divisors = load.find(divisors_name); !divisors.empty()) {
    const bool fits = divisors.dtype() == DType::F32 && divisors.elements() == rotary_dim / 2;
    const float* by = fits ? divisors.data<float>() : nullptr;
    if (!fits || !std::all_of(by, by + rotary_dim / 2, [](float x) { return x > 0 && std::isfinite(x); })) {
      bad_key(files, divisors_name.gguf, fmt::format("{} numbers above 0, in F32", rotary_dim / 2),
              fits ? "another number among them"
                   : fmt::format("{} of {}", divisors.elements(), to_string(divisors.dtype())));
    }
    for (int i = 0; i < rotary_dim / 2; ++i) rope.inverse_frequencies[static_cast<size_t>(i)] /= by[i];
  }
  return rope;
}

}  // namespace slipring

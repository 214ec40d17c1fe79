// Writes the seed corpus: small good files of every kind, from which the fuzzer starts.
// usage: slipring_fuzz_seeds FOLDER   makes FOLDER/gguf, FOLDER/safetensors and so on, one for each target
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "formats/gguf_writer.h"
#include "formats/safetensors_writer.h"
#include "make_state_seeds.h"

namespace {

using namespace slipring;
namespace fs = std::filesystem;

void gguf_seeds(const fs::path& folder) {
  fs::create_directories(folder);
  {
    GgufWriter writer(folder / "metadata");
    writer.set_text("general.architecture", "llama");
    writer.set_u32("general.alignment", 32);
    writer.set_u32("llama.block_count", 2);
    writer.set_f32("f", 1.5F);
    writer.set_bool("b", true);
    writer.set_texts("tokenizer.ggml.tokens", std::vector<std::string>{"<0x00>", "", "a"});
    writer.set_i32s("i", std::vector<int32_t>{1, -1});
    writer.finish();
  }
  for (const DType dtype : {DType::F32, DType::F16, DType::Q8_0, DType::Q4_K, DType::Q6_K, DType::IQ3_XXS, DType::IQ2_S,
                            DType::IQ4_XS, DType::MXFP4, DType::I32}) {
    GgufWriter writer(folder / std::string(to_string(dtype)));
    writer.set_text("general.architecture", "llama");
    writer.declare("blk.0.attn_q.weight", dtype, {2, info(dtype).block_elements});
    writer.declare("empty", dtype, {0, info(dtype).block_elements});
    writer.append("blk.0.attn_q.weight", Tensor(dtype, {2, info(dtype).block_elements}));
    writer.finish();
  }
}

void safetensors_seeds(const fs::path& folder) {
  fs::create_directories(folder);
  for (const DType dtype : {DType::F32, DType::BF16, DType::U8, DType::Bool, DType::I64}) {
    SafetensorsWriter writer(folder / std::string(to_string(dtype)), {{"format", "pt"}});
    writer.declare("a", dtype, {2, 3});
    writer.declare("b", dtype, {});
    writer.append("a", Tensor(dtype, {2, 3}));
    writer.append("b", Tensor(dtype, {}));
    writer.finish();
  }
}

void config_seeds(const fs::path& folder) {
  fs::create_directories(folder);
  const auto write = [&](const char* name, const char* text) { std::ofstream(folder / name) << text; };
  write("text", R"({"model_type":"gemma3_text","hidden_size":64,"layer_types":["sliding_attention"],"x":null,
    "rope_parameters":{"sliding_attention":{"rope_theta":1e4}},"tie_word_embeddings":true})");
  write("nested", R"({"model_type":"muse_glimmer","text_config":{"hidden_size":[1,2.5],"x":"\u00e9"}})");
  write("index", R"({"metadata":{"total_size":4},"weight_map":{"a":"model-00001-of-00001.safetensors"}})");
}

void tokenizer_seeds(const fs::path& folder) {
  fs::create_directories(folder);
  // The first byte chooses the tokenizer.
  const std::vector<std::string> texts{"the th",
                                       "  x\r\n\r\n",
                                       "<eot><t>",
                                       "don't DON'T 1234567",
                                       "\xC3\xA9\xCC\x81 \xE6\x97",
                                       "\xF0\x9F\x98\x80\x80\xFF\xED\xA0\x80"};
  for (size_t i = 0; i < 9; ++i) {
    for (size_t j = 0; j < texts.size(); ++j) {
      std::ofstream(folder / (std::to_string(i) + "-" + std::to_string(j))) << static_cast<char>(i) << texts[j];
    }
  }
}

void tokenizer_json_seeds(const fs::path& folder) {
  fs::create_directories(folder);
  const auto write = [&](const char* name, const char* text) { std::ofstream(folder / name) << text; };
  write("byte_level", R"({"added_tokens":[{"id":4,"content":"<eot>","special":true,"normalized":false,"rstrip":true}],
    "pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\p{L}+|\\s+|[^\\s\\p{L}]"},
    "behavior":"Isolated"},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},"decoder":{"type":"ByteLevel"},
    "model":{"type":"BPE","ignore_merges":true,"vocab":{"t":0,"h":1,"e":2,"th":3},"merges":["t h"]}})");
  write("pieces", R"({"added_tokens":[{"id":0,"content":"<unk>","special":true}],
    "normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"\u2581"},
    {"type":"Replace","pattern":{"String":" "},"content":"\u2581"}]},"decoder":{"type":"Sequence","decoders":[
    {"type":"Replace","pattern":{"String":"\u2581"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},
    {"type":"Strip","content":" ","start":1,"stop":0}]},"model":{"type":"BPE","unk_token":"<unk>","fuse_unk":true,
    "byte_fallback":true,"vocab":{"<unk>":0,"<0x0A>":1,"\u2581":2,"t":3,"h":4,"th":5},"merges":[["t","h"]]}})");
  write("metaspace",
        R"({"pre_tokenizer":{"type":"Metaspace","replacement":"\u2581","prepend_scheme":"first","split":true},
    "decoder":{"type":"Metaspace","replacement":"\u2581","prepend_scheme":"first"},
    "model":{"vocab":{"\u2581":0,"x":1,"\u2581x":2},"merges":["\u2581 x"]}})");
}

void template_seeds(const fs::path& folder) {
  fs::create_directories(folder);
  for (const auto& entry : fs::directory_iterator(SLIPRING_SOURCE_DIR "/tests/data/chat_templates")) {
    if (entry.path().extension() == ".jinja") {
      fs::copy_file(entry.path(), folder / entry.path().filename(), fs::copy_options::overwrite_existing);
    }
  }
}

void request_seeds(const fs::path& folder) {
  fs::create_directories(folder);
  const auto write = [&](const char* name, const char* text) { std::ofstream(folder / name) << text; };
  write("chat",
        R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":null,
    "tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]}],"max_tokens":5,"n":2,"stop":["a"],
    "tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"x":{"type":"string"}}}}}],"logprobs":true,
    "top_logprobs":3,"logit_bias":{"5":-100},"stream":true,"stream_options":{"include_usage":true},"seed":-1,"temperature":0.5})");
  write("completion",
        R"({"prompt":[[1,2],"a"],"logprobs":0,"max_completion_tokens":null,"chat_template_kwargs":{"a":1}})");
  write("tokenize", R"({"content":"a","add_special":true,"tokens":[1]})");
  write("muse",
        " to=self<|message|>hm to=f<|message|><atem:function_calls>\n<atem:invoke name=\"f\">\n<atem:parameter "
        "name=\"x\">[1]</atem:parameter>\n</atem:invoke></atem:function_calls><|eom|><|start|>assistant "
        "to=user<|message|>a");
  write("harmony",
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary "
        "to=functions.f<|message|>{}<|call|>");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    const fs::path folder = argv[1];
    gguf_seeds(folder / "gguf");
    safetensors_seeds(folder / "safetensors");
    config_seeds(folder / "config");
    template_seeds(folder / "template");
    request_seeds(folder / "request");
    tokenizer_seeds(folder / "tokenizer");
    tokenizer_json_seeds(folder / "tokenizer_json");
    testing::snapshot_seeds(folder / "snapshot");
    testing::program_seeds(folder / "program");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

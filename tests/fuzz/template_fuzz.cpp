// Any bytes as a chat template, rendered over a conversation: an Error, or text within the limits.
#include <string>
#include <string_view>

#include <slipring/error.h>

#include "text/jinja/parser.h"
#include "text/jinja/renderer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace slipring;
  static const jinja::Value messages = jinja::from_json(
      R"([{"role": "user", "content": "<b> \u00e9 \ud83d\ude00"}, {"role": "assistant", "content": "", "tool_calls":
      [{"id": "1", "function": {"name": "f", "arguments": {"x": [1, 2.5, null, true]}}}]}])");
  const jinja::RenderLimits limits{
      .steps = 20000, .produced_bytes = 4 << 20, .output_bytes = 1 << 18, .call_depth = 20};
  try {
    const jinja::Block block = jinja::parse({reinterpret_cast<const char*>(data), size});
    jinja::Dict variables;
    variables.set("messages", messages);
    variables.set("tools", messages);
    variables.set("bos_token", jinja::Value::string("<s>"));
    variables.set("add_generation_prompt", jinja::Value::boolean(true));
    jinja::Renderer renderer(limits, 1753000000);
    if (renderer.render(block, variables).size() > limits.output_bytes) __builtin_trap();
  } catch (const Error&) {
  }
  return 0;
}

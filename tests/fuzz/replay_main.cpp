// Feeds a fuzz target the files of some folders, then as many damaged copies of them: libFuzzer's main for builds
// without libFuzzer. The damage is the same in every run, so a failure can be looked into.
// usage: NAME_fuzz DAMAGED FOLDER...
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

namespace fs = std::filesystem;

void feed(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

std::vector<std::string> read_folder(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& item : fs::directory_iterator(folder)) paths.push_back(item.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> contents;
  for (const fs::path& path : paths) {
    std::ifstream in(path, std::ios::binary);
    contents.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return contents;
}

class Damage {
 public:
  std::string apply(std::string bytes, const std::vector<std::string>& all) {
    for (size_t times = 1 + below(4); times > 0; --times) once(bytes, all);
    return bytes;
  }
  size_t below(size_t bound) { return bound == 0 ? 0 : random_() % bound; }

 private:
  void once(std::string& bytes, const std::vector<std::string>& all) {
    const size_t at = below(bytes.size());
    const size_t length = std::min(bytes.size() - at, 1 + below(16));
    switch (below(6)) {
      case 0:  // one bit
        if (!bytes.empty()) bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ (1U << below(8)));
        break;
      case 1:  // numbers that overflow
        for (size_t i = 0; i < std::min<size_t>(length, 8); ++i) bytes[at + i] = below(2) == 0 ? '\xFF' : '\x7F';
        break;
      case 2:  // less
        bytes.erase(at, length);
        break;
      case 3:  // the same again
        bytes.insert(at, bytes.substr(at, length));
        break;
      case 4:  // the end is missing
        bytes.resize(at);
        break;
      default: {  // something from elsewhere
        const std::string& other = all[below(all.size())];
        bytes.insert(at, other.substr(below(other.size()), length));
      }
    }
  }
  std::minstd_rand random_{1};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  std::vector<std::string> inputs;
  for (int i = 2; i < argc; ++i) {
    for (std::string& input : read_folder(argv[i])) inputs.push_back(std::move(input));
  }
  for (const std::string& input : inputs) feed(input);
  Damage damage;
  const int damaged = inputs.empty() ? 0 : std::atoi(argv[1]);
  for (int i = 0; i < damaged; ++i) feed(damage.apply(inputs[damage.below(inputs.size())], inputs));
  std::printf("%zu inputs, %d damaged copies\n", inputs.size(), damaged);
  return inputs.empty() ? 1 : 0;
}

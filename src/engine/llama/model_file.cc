#include "engine/llama/model_file.h"

#include <gguf.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

#include "base/byte_io.h"
#include "base/hash.h"
#include "base/try.h"

namespace kvserve {
namespace {

constexpr std::uint64_t kBlocks = 256;
constexpr std::uint64_t kBlockBytes = 4096;

tl::unexpected<Error> BadModel(const std::string& path, const std::string& what) {
  return MakeError(ErrorCode::kBadInput, "model " + path + ": " + what);
}

struct GgufDeleter {
  void operator()(gguf_context* context) const { gguf_free(context); }
};

Status AppendBytes(std::ifstream& file, const std::string& path, std::uint64_t at,
                   std::uint64_t count, ByteWriter& out) {
  const auto bytes = out.Grow(count);
  file.seekg(static_cast<std::streamoff>(at));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(count));
  if (!file)
    return BadModel(path,
                    "cannot read " + std::to_string(count) + " bytes at " + std::to_string(at));
  return {};
}

}  // namespace

Status CheckGguf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return BadModel(path, "no such file or not readable");
  std::array<char, 4> magic{};
  file.read(magic.data(), magic.size());
  if (!file || std::memcmp(magic.data(), "GGUF", magic.size()) != 0) {
    return BadModel(path, "not a GGUF file");
  }
  return {};
}

Result<Fingerprint> FingerprintGguf(const std::string& path, DType cache_dtype) {
  KVSERVE_TRY(CheckGguf(path));
  const std::unique_ptr<gguf_context, GgufDeleter> header(
      gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr}));
  if (!header) return BadModel(path, "the GGUF header is damaged");
  const std::uint64_t data_at = gguf_get_data_offset(header.get());
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return BadModel(path, "no such file or not readable");
  const auto file_bytes = static_cast<std::uint64_t>(file.tellg());
  if (data_at > file_bytes) return BadModel(path, "truncated before its tensors");

  std::vector<std::byte> sample;
  ByteWriter out(sample);
  out.Put(file_bytes);
  out.Put(static_cast<std::uint8_t>(cache_dtype));
  KVSERVE_TRY(AppendBytes(file, path, 0, data_at, out));
  const std::uint64_t data_bytes = file_bytes - data_at;
  if (data_bytes <= kBlocks * kBlockBytes) {
    KVSERVE_TRY(AppendBytes(file, path, data_at, data_bytes, out));
    return Hash128(sample);
  }
  const std::uint64_t last_start = data_bytes - kBlockBytes;
  for (std::uint64_t block = 0; block < kBlocks; ++block) {
    const std::uint64_t start = last_start / (kBlocks - 1) * block;
    KVSERVE_TRY(AppendBytes(file, path, data_at + start, kBlockBytes, out));
  }
  return Hash128(sample);
}

}  // namespace kvserve

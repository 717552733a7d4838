#include "kv_source.h"

#include <cstring>

#include "base/try.h"
#include "frame_sequence.h"
#include "tensorfile/input_file.h"
#include "tensorfile/kv_file.h"

namespace kvserve::tool {
namespace {

// Copies the rows of a contiguous plane to where they belong in a longer one.
void CopyRows(const ConstPlaneView& from, const PlaneView& to, std::uint32_t first_row) {
  if (from.data == nullptr || from.values() == 0) return;
  std::memcpy(to.at(first_row, 0, 0), from.data, from.values() * DTypeBytes(from.dtype));
}

Status DecodeAll(std::span<const std::byte> bytes, const CodecOptions& codec, KvBuffer& out) {
  KVSERVE_ASSIGN(FrameDecoder decoder, FrameDecoder::Create(codec));
  KVSERVE_ASSIGN(const FrameSequence sequence, ReadFrameSequence(bytes));
  std::vector<KvBuffer::LayerTokens> layers;
  for (std::uint32_t i = 0; i < sequence.info.layer_tokens.size(); ++i) {
    layers.push_back({i, sequence.info.layer_tokens[i]});
  }
  KVSERVE_TRY(out.Resize(sequence.info.geometry, sequence.info.tokens, layers));
  const KvView all = out.view();
  KvBuffer chunk;
  for (std::size_t i = 0; i < sequence.frame_begin.size(); ++i) {
    const std::size_t offset = sequence.frame_begin[i];
    const auto used = decoder.Decode(bytes.subspan(offset), {}, chunk);
    if (!used) return FrameError(i, offset, used.error());
    for (const auto& layer : std::as_const(chunk).view().layers) {
      if (layer.tokens.empty()) continue;
      const auto& target = all.layers[layer.layer];
      const std::uint32_t first_row = layer.tokens.begin - target.tokens.begin;
      CopyRows(layer.k, target.k, first_row);
      CopyRows(layer.v, target.v, first_row);
    }
  }
  return {};
}

}  // namespace

// Eight bytes of header length, then an object; the magic of a frame makes a length beyond any
// file.
Result<bool> IsSafetensors(const std::string& path) {
  KVSERVE_ASSIGN(const InputFile file, InputFile::Open(path));
  struct {
    std::uint64_t length;
    char first;
  } start{};
  if (file.size() < 9) return false;
  KVSERVE_TRY(file.ReadAt(0, std::as_writable_bytes(std::span(&start.length, 1))));
  KVSERVE_TRY(file.ReadAt(8, std::as_writable_bytes(std::span(&start.first, 1))));
  return start.first == '{' && start.length < (std::uint64_t{1} << 32);
}

Status LoadKv(const std::string& path, const CodecOptions& codec, KvBuffer& out) {
  KVSERVE_ASSIGN(const bool safetensors, IsSafetensors(path));
  if (safetensors) {
    KVSERVE_ASSIGN(const KvFileReader file, KvFileReader::Open(path));
    return file.Read(file.info().tokens, out);
  }
  KVSERVE_ASSIGN(const auto bytes, ReadFile(path));
  if (auto status = DecodeAll(bytes, codec, out); !status) {
    return MakeError(status.error().code, path + ": " + status.error().message);
  }
  return {};
}

}  // namespace kvserve::tool

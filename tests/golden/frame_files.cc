#include "golden/frame_files.h"

#include <cstdio>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/byte_io.h"
#include "base/hash.h"
#include "base/try.h"
#include "frame/frame.h"
#include "kvserve/codec.h"

namespace kvserve::testing {
namespace {

void PutPlane(const ConstPlaneView& plane, ByteWriter& out) {
  const std::size_t size = DTypeBytes(plane.dtype);
  for (std::uint32_t token = 0; token < plane.tokens; ++token) {
    for (std::uint32_t head = 0; head < plane.heads; ++head) {
      for (std::uint32_t d = 0; d < plane.dim; ++d) {
        out.PutBytes({plane.at(token, head, d), size});
      }
    }
  }
}

}  // namespace

std::vector<std::byte> ReadBytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(chars));
  return {bytes.begin(), bytes.end()};
}

void WriteBytes(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

std::map<std::string, std::string> ReadDigests(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::map<std::string, std::string> digests;
  std::string name;
  std::string digest;
  while (file >> name >> digest) digests[name] = digest;
  return digests;
}

void WriteDigests(const std::filesystem::path& path,
                  const std::map<std::string, std::string>& digests) {
  std::ofstream file(path);
  for (const auto& [name, digest] : digests) file << name << ' ' << digest << '\n';
}

std::string DecodedDigest(const ConstKvView& view) {
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  for (const auto& layer : view.layers) {
    out.Put(layer.layer);
    out.Put(layer.tokens.begin);
    out.Put(layer.tokens.end);
    PutPlane(layer.k, out);
    if (layer.v.data != nullptr) PutPlane(layer.v, out);
  }
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(Hash64(bytes)));
  return text;
}

Result<std::size_t> DecodeRecorded(std::span<const std::byte> frame,
                                   const std::filesystem::path& artefacts, KvBuffer& out) {
  KVSERVE_ASSIGN(const FrameView parsed, ReadFrame(frame));
  CodecOptions options;
  if (!parsed.header.artefact.empty()) {
    for (const auto& entry : std::filesystem::directory_iterator(artefacts)) {
      if (entry.path().extension() != ".calib") continue;
      KVSERVE_ASSIGN(auto artefact, LoadCalibration(entry.path()));
      if (CalibrationFingerprint(*artefact) == parsed.header.artefact) {
        options.calibration = std::move(artefact);
      }
    }
  }
  KVSERVE_ASSIGN(auto decoder, FrameDecoder::Create(options));
  return decoder.Decode(frame, {}, out);
}

}  // namespace kvserve::testing

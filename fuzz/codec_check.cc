#include "codec_check.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/byte_io.h"
#include "chosen_stage.h"
#include "decode_contract.h"

namespace kvserve::fuzzing {
namespace {

using Bytes = std::span<const std::byte>;

// Planes over heap memory of exactly their size, for the address sanitizer.
class Planes {
 public:
  Planes(Choices& choices, const CodecLimits& limits) {
    const unsigned count = choices.Byte() % 5;
    for (unsigned i = 0; i < count; ++i) {
      SymbolPlane plane;
      plane.layer = i / 2;
      plane.kind = i % 2 == 0 ? PlaneKind::kKey : PlaneKind::kValue;
      plane.tokens = choices.Byte() * limits.tokens_per_unit;
      plane.columns = choices.Byte();
      plane.alphabet = 1U + choices.Byte();
      total_ += plane.count();
      planes_.push_back(plane);
    }
    if (total_ > limits.most_symbols) return;
    storage_ = std::make_unique<std::uint8_t[]>(total_);
    Attach();
  }
  Planes(const Planes& other) : total_(other.total_), planes_(other.planes_) {
    storage_ = std::make_unique<std::uint8_t[]>(total_);
    Attach();
  }
  Planes& operator=(const Planes&) = delete;

  [[nodiscard]] std::size_t total() const { return total_; }
  [[nodiscard]] std::span<SymbolPlane> view() { return planes_; }
  [[nodiscard]] std::span<const std::uint8_t> symbols() const { return {storage_.get(), total_}; }
  [[nodiscard]] std::span<std::uint8_t> symbols() { return {storage_.get(), total_}; }

 private:
  void Attach() {
    std::size_t at = 0;
    for (SymbolPlane& plane : planes_) {
      plane.symbols = symbols().subspan(at, plane.count());
      at += plane.count();
      std::ranges::fill(plane.symbols, std::uint8_t{0xEE});
    }
  }

  std::size_t total_ = 0;
  std::vector<SymbolPlane> planes_;
  std::unique_ptr<std::uint8_t[]> storage_;
};

bool Accepted(const Status& status) {
  if (!status && !AllowedError(status.error().code)) {
    Fail("bytes caused " + std::string(ErrorName(status.error().code)) + ": " +
         status.error().message);
  }
  return status.has_value();
}

void CheckAlphabets(std::span<const SymbolPlane> planes) {
  for (const SymbolPlane& plane : planes) {
    for (const std::uint8_t symbol : plane.symbols) {
      if (symbol >= plane.alphabet) Fail("a symbol outside of its alphabet");
    }
  }
}

bool DecodeWhole(const Codec& codec, const FrameContext& frame, Bytes bytes, Planes& planes) {
  ByteReader reader(bytes);
  if (!Accepted(codec.Decode(frame, reader, planes.view()))) return false;
  CheckAlphabets(planes.view());
  return reader.remaining() == 0;
}

// Where each piece's symbols lie in the storage, if the pieces follow one another and cover all.
class Cover {
 public:
  explicit Cover(std::span<const SymbolPlane> planes) : planes_(planes) {}

  std::size_t Next(const SymbolPiece& piece) {
    while (plane_ < piece.first_plane && Empty(plane_)) ++plane_;
    if (piece.first_plane != plane_ || piece.first_row != row_ || piece.planes == 0) {
      Fail("a piece does not begin where the last one ends");
    }
    if (piece.rows > 0) return Rows(piece);
    if (row_ != 0 || piece.planes > planes_.size() - plane_) Fail("a piece beyond the planes");
    std::size_t count = 0;
    for (std::size_t i = 0; i < piece.planes; ++i) count += planes_[plane_++].count();
    return count;
  }
  void End() {
    while (plane_ < planes_.size() && Empty(plane_)) ++plane_;
    if (plane_ != planes_.size() || row_ != 0) Fail("pieces leave symbols out");
  }

 private:
  [[nodiscard]] bool Empty(std::size_t plane) const {
    return plane < planes_.size() && planes_[plane].count() == 0;
  }
  std::size_t Rows(const SymbolPiece& piece) {
    const SymbolPlane& plane = planes_[plane_];
    if (piece.planes != 1 || piece.rows > plane.tokens - row_) Fail("rows beyond their plane");
    row_ += piece.rows;
    if (row_ == plane.tokens) {
      row_ = 0;
      ++plane_;
    }
    return std::size_t{piece.rows} * plane.columns;
  }

  std::span<const SymbolPlane> planes_;
  std::size_t plane_ = 0;
  std::uint32_t row_ = 0;
};

// Last piece first, since they stand alone. Nothing when the codec offers no pieces.
std::optional<bool> DecodePieces(const Codec& codec, const FrameContext& frame, Bytes bytes,
                                 Planes& planes) {
  ByteReader input(bytes);
  const auto opened = codec.Open(frame, input, planes.view());
  if (!opened) {
    (void)Accepted(tl::unexpected(opened.error()));
    return false;
  }
  const SymbolReader* reader = *opened;
  if (reader == nullptr) return std::nullopt;
  Cover cover(planes.view());
  std::vector<std::span<std::uint8_t>> targets;
  std::size_t at = 0;
  for (const SymbolPiece& piece : reader->pieces()) {
    const std::size_t count = cover.Next(piece);
    targets.push_back(planes.symbols().subspan(at, count));
    at += count;
  }
  cover.End();
  Arena scratch;
  for (std::size_t i = targets.size(); i-- > 0;) {
    if (!Accepted(reader->Read(i, targets[i], scratch))) return false;
    scratch.Reset();
  }
  CheckAlphabets(planes.view());
  return true;
}

// What was decoded encodes within its bound, and to something that decodes the same. Versions of
// old releases are only decoded.
void CheckEncodes(const Codec& codec, const FrameContext& frame, bool old_version, Planes& planes) {
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  if (old_version) {
    if (codec.Encode(frame, planes.view(), writer)) Fail("an old version encodes");
    return;
  }
  if (const Status encoded = codec.Encode(frame, planes.view(), writer); !encoded) {
    Fail("decoded symbols do not encode: " + encoded.error().message);
  }
  if (bytes.size() > codec.MaxEncodedBytes(planes.view())) Fail("more bytes than the bound");
  Planes again(planes);
  if (!DecodeWhole(codec, frame, bytes, again)) Fail("encoded symbols do not decode");
  if (!std::ranges::equal(again.symbols(), planes.symbols())) Fail("other symbols come back");
}

void Check(const Codec& codec, Bytes bytes, bool scalar, bool old_version, Planes& planes) {
  const FrameContext frame = CodecContext();
  Planes other(planes);
  const bool whole = DecodeWhole(codec, frame, bytes, planes);
  std::optional<bool> second;
  {
    std::optional<ScalarKernels> pinned;
    if (scalar) pinned.emplace();
    second = DecodePieces(codec, frame, bytes, other);
    if (!second && scalar) second = DecodeWhole(codec, frame, bytes, other);
  }
  if (second && *second != whole) Fail(whole ? "refused the second way" : "taken the second way");
  if (!whole) return;
  if (second && !std::ranges::equal(planes.symbols(), other.symbols())) Fail("other symbols");
  CheckEncodes(codec, frame, old_version, planes);
}

}  // namespace

void CheckCodec(std::span<const std::uint8_t> input, const CodecLimits& limits) {
  Choices choices(input);
  const auto chosen = ChooseStage(StageKind::kCodec, choices);
  if (!chosen) return;
  const bool scalar = (choices.Byte() & 1) != 0;
  Planes planes(choices, limits);
  if (planes.total() > limits.most_symbols) return;
  const auto codec = chosen->entry->make_codec(chosen->settings);
  if (!codec) return;
  const bool old_version = chosen->settings.version() != chosen->entry->info->version;
  Check(**codec, std::as_bytes(choices.rest()), scalar, old_version, planes);
}

}  // namespace kvserve::fuzzing

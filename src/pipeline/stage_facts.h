// What stages see: their description and settings, the frame and plane in hand, symbols.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/arena.h"
#include "base/workers.h"
#include "kvserve/codec.h"
#include "kvserve/geometry.h"
#include "kvserve/profile.h"
#include "library/calibration_artefact.h"

namespace kvserve {

// ---- description -------------------------------------------------------------------------------

enum class ParameterType : std::uint8_t { kInteger, kReal, kBoolean, kChoice };

// One parameter of a stage. `id` is pinned. A per-plane parameter is written as two values, K with
// `id` and V with `id + 1`; in the short form `levels=8` sets both and `k_levels=16` one.
struct ParameterInfo {
  std::uint8_t id = 0;
  std::string_view name;
  ParameterType type = ParameterType::kInteger;
  double low = 0.0;
  double high = 0.0;
  double default_k = 0.0;  // the only default unless per_plane
  double default_v = 0.0;
  bool per_plane = false;
  std::string_view unit;
  std::string_view help;
  std::span<const std::string_view> choices;  // kChoice: the value is an index into it
  std::uint8_t since = 1;  // stage version that brought it; older frames have its default
};

class DroppedTokens;

// What a quantizer reads and writes: real coefficients, or the cache's own elements bit for bit.
enum class QuantizerDomain : std::uint8_t { kReal, kNative };

struct StageInfo {
  std::uint16_t id = 0;  // never reused; 0 is invalid
  std::string_view name;
  std::uint8_t version = 1;
  StageKind kind = StageKind::kTransform;
  bool lossless = false;  // a chain is bit-exact when every stage is
  bool host = true;       // devices
  bool cuda = false;
  std::span<const ParameterInfo> parameters;
  std::string_view summary;
  QuantizerDomain domain = QuantizerDomain::kReal;  // quantizers only
  std::uint8_t oldest_version = 0;                  // that is still decoded; 0: only `version`
};

// Parameter values of one stage instance, complete and within range.
class Settings {
 public:
  Settings() = default;
  Settings(const StageInfo& info, std::vector<ParameterValue> values)
      : Settings(info, std::move(values), info.version) {}
  Settings(const StageInfo& info, std::vector<ParameterValue> values, std::uint8_t version)
      : info_(&info), values_(std::move(values)), version_(version) {}
  // Value of the parameter with this id. With a plane: of a per-plane parameter the value for K or
  // V, of any other its only value. 0 for an id that the schema lacks.
  [[nodiscard]] double value(std::uint8_t id) const;
  [[nodiscard]] double value(std::uint8_t id, PlaneKind plane) const;
  [[nodiscard]] std::uint32_t integer(std::uint8_t id) const;
  [[nodiscard]] std::uint32_t integer(std::uint8_t id, PlaneKind plane) const;
  [[nodiscard]] const std::vector<ParameterValue>& values() const { return values_; }
  // Of the bytes: that of the stage for an encoder, possibly an older one for a decoder.
  [[nodiscard]] std::uint8_t version() const { return version_; }

 private:
  const StageInfo* info_ = nullptr;
  std::vector<ParameterValue> values_;
  std::uint8_t version_ = 1;
};

// ---- what stages see ---------------------------------------------------------------------------

// Real coefficients of one plane, [token, head, dim] contiguous float32, owned by the pipeline.
// Columns (heads * dim) may be mixed freely by a transform.
template <typename T>
struct BasicRealPlane {
  T* data = nullptr;
  std::uint32_t tokens = 0;
  std::uint32_t heads = 0;
  std::uint32_t dim = 0;
  [[nodiscard]] std::uint32_t columns() const { return heads * dim; }
  [[nodiscard]] std::size_t values() const { return std::size_t{tokens} * heads * dim; }
  [[nodiscard]] std::span<T> span() const { return {data, values()}; }
};
using RealPlane = BasicRealPlane<float>;
using ConstRealPlane = BasicRealPlane<const float>;

// Facts about the frame that both sides know before any plane is coded. The executor sets arena and
// workers, never null, for the calls of codecs; other stages get a PlaneContext with its own arena.
struct FrameContext {
  const KvGeometry* geometry = nullptr;
  TokenRange tokens;                              // of the request; RoPE position = token index
  std::uint32_t prompt_tokens = 0;                // 0: the sender did not know
  const CalibrationArtefact* artefact = nullptr;  // set when a stage of the chain needs it
  const QueryView* queries = nullptr;  // encoder only; set when a selector of the chain needs them
  Device device = Device::kHost;
  Stream stream;
  Arena* arena = nullptr;      // of the calling thread; kept until the frame is done
  Workers* workers = nullptr;  // for loops inside a codec
  // Quantizers add how many values they limited to their range; encoder only, may be null.
  std::atomic<std::uint64_t>* clamped_values = nullptr;
  DroppedTokens* dropped = nullptr;  // what the frame leaves out; decoder only, may be null
};

// A plane that is already decoded, at the domain of the transform that asked for feedback.
struct DecodedPlane {
  std::uint32_t layer = 0;
  PlaneKind kind = PlaneKind::kKey;
  TokenRange tokens;
  ConstRealPlane values;
};

// Facts about the plane in hand.
struct PlaneContext {
  const FrameContext* frame = nullptr;
  std::uint32_t layer = 0;
  PlaneKind kind = PlaneKind::kKey;
  TokenRange tokens;                     // that this layer holds, absolute
  std::span<const float> token_weights;  // [token], encoder only; empty: all tokens equal
  std::span<const DecodedPlane>
      decoded;             // earlier planes in coding order; feedback transforms only
  Arena* arena = nullptr;  // scratch of this thread, kept until the plane is done; never null
};

// What a stage has gathered or read about a plane. Made in the plane's arena by the stage that it
// is given back to, hence trivially destructible.
struct PlaneState {};

struct PlaneShape {
  std::uint32_t tokens = 0;
  std::uint32_t heads = 0;
  std::uint32_t dim = 0;
  [[nodiscard]] std::uint32_t columns() const { return heads * dim; }
};

// Class of a token that was dropped: it has no symbols, and the receiver has zeros in its place.
inline constexpr std::uint8_t kDroppedToken = 255;

// Some of a plane's symbols, [token, column], with an alphabet of their own: those of the tokens of
// one class and the heads of one class.
struct SymbolRun {
  std::uint32_t tokens = 0;
  std::uint32_t columns = 0;
  std::uint32_t alphabet = 256;  // 1..256
  [[nodiscard]] std::size_t count() const { return std::size_t{tokens} * columns; }
};

// Symbols of one plane, [token, column] row-major, or in runs. The quantizer fixes shape, alphabet
// and runs; storage is the pipeline's. Classes are side information that a codec may use as
// context.
struct SymbolPlane {
  std::uint32_t layer = 0;
  PlaneKind kind = PlaneKind::kKey;
  std::uint32_t tokens = 0;
  std::uint32_t columns = 0;
  std::uint32_t alphabet = 256;  // 1..256; symbols are below it
  std::span<std::uint8_t> symbols;
  std::vector<std::uint8_t> token_classes;  // [token] or empty: all alike
  std::vector<std::uint8_t> head_classes;   // [head] or empty: all alike
  // How the symbols lie, one run after another; each is a plane of its own to the codec, which then
  // codes the frame whole. Empty: one run of all. Not with a quantizer that works by rows.
  std::vector<SymbolRun> runs;
  [[nodiscard]] std::size_t count() const {
    if (runs.empty()) return std::size_t{tokens} * columns;
    std::size_t sum = 0;
    for (const SymbolRun& run : runs) sum += run.count();
    return sum;
  }
};

// Where the scales, means or tables that a stage works with come from, for people who wonder
// whether their calibration is in force.
enum class ScaleSource : std::uint8_t {
  kUnit = 0,        // none are used: values are taken as they are
  kFrame = 1,       // counted over the frame and sent in it
  kProfile = 2,     // parameters of the profile
  kCalibrated = 3,  // the calibration artefact that the frame names
};

}  // namespace kvserve

// kvserve compare: how far two pieces of KV are apart, layer by layer.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "base/try.h"
#include "codec_arguments.h"
#include "command.h"
#include "kv_source.h"
#include "pipeline/plane_floats.h"
#include "table.h"

namespace kvserve::tool {
namespace {

using Json = nlohmann::json;

struct PlaneError {
  double signal = 0.0;  // sum of squares of a
  double noise = 0.0;   // sum of squares of a - b
  double max_abs = 0.0;
  std::uint64_t values = 0;      // compared
  std::uint64_t non_finite = 0;  // left out: NaN or infinity on one side only, or different ones
  bool bit_exact = true;

  [[nodiscard]] double rmse() const {
    return values == 0 ? 0.0 : std::sqrt(noise / static_cast<double>(values));
  }
  // Infinite for equal planes; JSON says null.
  [[nodiscard]] double snr_db() const { return 10.0 * std::log10(signal / noise); }
};

std::vector<float> Values(const ConstPlaneView& plane) {
  std::vector<float> values(plane.values());
  LoadFloats(plane, values);
  return values;
}

// Both planes are contiguous and of one shape; their dtypes may differ.
PlaneError ComparePlanes(const ConstPlaneView& a, const ConstPlaneView& b) {
  PlaneError error;
  if (a.data == nullptr || a.values() == 0) return error;
  error.bit_exact =
      a.dtype == b.dtype && std::memcmp(a.data, b.data, a.values() * DTypeBytes(a.dtype)) == 0;
  const std::vector<float> first = Values(a);
  const std::vector<float> second = Values(b);
  for (std::size_t i = 0; i < first.size(); ++i) {
    const double x = first[i];
    const double y = second[i];
    if (!std::isfinite(x) || !std::isfinite(y)) {
      const bool same = std::isnan(x) ? std::isnan(y) : x == y;
      if (!same) ++error.non_finite;
      continue;
    }
    ++error.values;
    error.signal += x * x;
    error.noise += (x - y) * (x - y);
    error.max_abs = std::max(error.max_abs, std::fabs(x - y));
  }
  return error;
}

struct LayerError {
  std::uint32_t layer = 0;
  bool single_plane = false;
  PlaneError k;
  PlaneError v;
};

std::string Describe(const ConstLayerView& layer) {
  return "tokens " + std::to_string(layer.tokens.begin) + ".." + std::to_string(layer.tokens.end) +
         ", " + std::to_string(layer.k.heads) + " heads, K " + std::to_string(layer.k.dim) +
         ", V " + std::to_string(layer.v.dim);
}

Result<std::vector<LayerError>> CompareLayers(const ConstKvView& a, const ConstKvView& b) {
  if (a.layers.size() != b.layers.size()) {
    return MakeError(ErrorCode::kMismatch, "the first has " + std::to_string(a.layers.size()) +
                                               " layers, the second " +
                                               std::to_string(b.layers.size()));
  }
  std::vector<LayerError> errors;
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    const auto& first = a.layers[i];
    const auto& second = b.layers[i];
    if (Describe(first) != Describe(second)) {
      return MakeError(ErrorCode::kMismatch, "layer " + std::to_string(i) + ": the first has " +
                                                 Describe(first) + "; the second " +
                                                 Describe(second));
    }
    errors.push_back({first.layer, first.v.data == nullptr, ComparePlanes(first.k, second.k),
                      ComparePlanes(first.v, second.v)});
  }
  return errors;
}

Json PlaneJson(const PlaneError& error) {
  const double snr = error.snr_db();
  return {{"rmse", error.rmse()},
          {"max_abs", error.max_abs},
          {"snr_db", std::isfinite(snr) ? Json(snr) : Json()},
          {"non_finite", error.non_finite}};
}

void PrintErrors(const std::vector<LayerError>& errors, bool bit_exact) {
  Table table({"layer", "plane", "rmse", "max_abs", "snr_db", "non_finite"});
  const auto add = [&](std::uint32_t layer, const char* plane, const PlaneError& error) {
    table.Add({std::to_string(layer), plane, Fixed(error.rmse(), 6), Fixed(error.max_abs, 6),
               error.noise == 0 ? "exact" : Fixed(error.snr_db(), 2),
               std::to_string(error.non_finite)});
  };
  for (const LayerError& layer : errors) {
    add(layer.layer, "k", layer.k);
    if (!layer.single_plane) add(layer.layer, "v", layer.v);
  }
  table.Print();
  std::printf("bit exact: %s\n", bit_exact ? "yes" : "no");
}

struct Arguments {
  std::string a;
  std::string b;
  CodecArguments codec;
};

Status RunCompare(const Arguments& arguments, const Invocation& invocation) {
  KVSERVE_ASSIGN(const CodecOptions codec, LoadCodecOptions(arguments.codec));
  KvBuffer first;
  KvBuffer second;
  KVSERVE_TRY(LoadKv(arguments.a, codec, first));
  KVSERVE_TRY(LoadKv(arguments.b, codec, second));
  KVSERVE_ASSIGN(const auto errors,
                 CompareLayers(std::as_const(first).view(), std::as_const(second).view()));
  bool bit_exact = true;
  for (const LayerError& layer : errors) {
    bit_exact = bit_exact && layer.k.bit_exact && layer.v.bit_exact;
  }
  if (!invocation.json) {
    PrintErrors(errors, bit_exact);
    return {};
  }
  Json document = {{"layers", Json::array()}, {"bit_exact", bit_exact}};
  for (const LayerError& layer : errors) {
    document["layers"].push_back({{"layer", layer.layer},
                                  {"k", PlaneJson(layer.k)},
                                  {"v", layer.single_plane ? Json() : PlaneJson(layer.v)}});
  }
  PrintJson(invocation, std::move(document));
  return {};
}

}  // namespace

void AddCompare(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& command =
      *app.add_subcommand("compare", "Error between two KV files or files of frames, per layer");
  command.add_option("a", arguments->a, "KV file or file of frames: the reference")->required();
  command.add_option("b", arguments->b, "KV file or file of frames")->required();
  AddCodecOptions(command, arguments->codec);
  AddJsonFlag(command, invocation);
  command.footer(
      "snr_db is 10 log10(sum a^2 / sum (a - b)^2); null or 'exact' without any error.\n"
      "non_finite counts values that are NaN or infinite on one side only; they are left out.\n"
      "Examples:\n"
      "  kvserve compare kv.safetensors kv.kvs\n"
      "  kvserve compare kv.safetensors restored.safetensors --json");
  command.callback([arguments, &invocation] {
    invocation.run = [arguments, &invocation] { return RunCompare(*arguments, invocation); };
  });
}

}  // namespace kvserve::tool

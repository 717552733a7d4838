#include "engine/llama/output_weights.h"

#include <ggml.h>
#include <gguf.h>

#include <cstring>
#include <fstream>
#include <memory>

#include "base/try.h"

namespace kvserve {
namespace {

struct Deleter {
  void operator()(gguf_context* context) const { gguf_free(context); }
  void operator()(ggml_context* context) const { ggml_free(context); }
};

// The tensors of a GGUF file by name, read one by one.
class GgufTensors {
 public:
  static Result<GgufTensors> Open(const std::string& path) {
    ggml_context* shapes = nullptr;
    GgufTensors tensors(path);
    tensors.header_.reset(gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = &shapes}));
    tensors.shapes_.reset(shapes);
    tensors.file_.open(path, std::ios::binary);
    if (!tensors.header_ || shapes == nullptr || !tensors.file_) {
      return MakeError(ErrorCode::kBadInput, "model " + path + ": the GGUF header is damaged");
    }
    return tensors;
  }

  // Null when there is none.
  [[nodiscard]] const ggml_tensor* Find(const std::string& name) const {
    return ggml_get_tensor(shapes_.get(), name.c_str());
  }

  // All values, the first dimension fastest.
  [[nodiscard]] Status Read(const ggml_tensor& tensor, std::vector<float>& values) {
    const std::int64_t index = gguf_find_tensor(header_.get(), tensor.name);
    const auto refuse = [&](const std::string& what) {
      return MakeError(ErrorCode::kBadInput, "model " + path_ + ": " + tensor.name + ": " + what);
    };
    if (index < 0) return refuse("it is not in the header");
    raw_.resize(ggml_nbytes(&tensor));
    file_.seekg(static_cast<std::streamoff>(gguf_get_data_offset(header_.get()) +
                                            gguf_get_tensor_offset(header_.get(), index)));
    file_.read(raw_.data(), static_cast<std::streamsize>(raw_.size()));
    if (!file_) return refuse("the file ends before it");
    values.resize(static_cast<std::size_t>(ggml_nelements(&tensor)));
    if (tensor.type == GGML_TYPE_F32) {
      std::memcpy(values.data(), raw_.data(), raw_.size());
      return {};
    }
    const ggml_to_float_t convert = ggml_get_type_traits(tensor.type)->to_float;
    if (convert == nullptr) return refuse("its type cannot be read");
    convert(raw_.data(), values.data(), ggml_nelements(&tensor));
    return {};
  }

 private:
  explicit GgufTensors(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::unique_ptr<gguf_context, Deleter> header_;
  std::unique_ptr<ggml_context, Deleter> shapes_;
  std::ifstream file_;
  std::vector<char> raw_;
};

}  // namespace

Status VisitGgufOutputWeights(const std::string& path,
                              const std::vector<std::uint32_t>& model_layers,
                              const OutputWeightsVisit& visit) {
  KVSERVE_ASSIGN(GgufTensors tensors, GgufTensors::Open(path));
  std::vector<float> weights;
  std::vector<float> gains;
  for (std::uint32_t layer = 0; layer < model_layers.size(); ++layer) {
    const std::string block = "blk." + std::to_string(model_layers[layer]);
    const ggml_tensor* projection = tensors.Find(block + ".attn_output.weight");
    if (projection == nullptr || ggml_n_dims(projection) != 2) continue;
    KVSERVE_TRY(tensors.Read(*projection, weights));
    const auto inputs = static_cast<std::size_t>(projection->ne[0]);
    const ggml_tensor* norm = tensors.Find(block + ".post_attention_norm.weight");
    if (norm != nullptr && norm->ne[0] == projection->ne[1]) {
      KVSERVE_TRY(tensors.Read(*norm, gains));
      for (std::size_t i = 0; i < weights.size(); ++i) weights[i] *= gains[i / inputs];
    }
    KVSERVE_TRY(visit(layer, weights, inputs));
  }
  return {};
}

}  // namespace kvserve
